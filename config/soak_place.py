"""The place of the soak: the drills' own, with a proxy on each line between a group of processes and a peer of it, wrong
clocks, and staff.

Kept here: a process that was started in other conditions is started anew in ordinary ones by `restore`; the proxies, which
live in this process, are gone when it is closed.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, override
from urllib.parse import urlsplit
from uuid import UUID

import httpx2
import psycopg
import redis
from celery import current_app
from django.apps import apps
from django.contrib.auth.models import User
from django.db import Error, transaction
from kombu import exceptions

from config import drill_place, drill_saga, embedded, supervisor
from ledger import acts, resolutions, sql, submission
from recovery import clients, proxy
from recovery.drills import place, soak
from recovery.drills.surroundings import Tickets

DATABASE, BROKER, PROVIDER = "database", "broker", "provider"
GROUPS: Mapping[str, Sequence[str]] = {
    "the API": (place.API,),
    "one worker": (place.FIRST,),
    "the other processes": (place.SECOND, place.COMPENSATION, place.SWEEPS, place.BEAT),
}
CALLERS = ("one worker", "the other processes")  # the API calls no provider
FAKETIME = "*/faketime/libfaketimeMT.so.1"  # below /usr/lib, where Debian puts it
REACH_SECONDS = 5
REASON = "the soak acts at random"
AGE = """
UPDATE ledger_job SET finished_at = finished_at - make_interval(days => %s) WHERE id = ANY(%s::uuid[])
"""
GONE = (redis.RedisError, exceptions.OperationalError, OSError)  # what a broker that is away raises


def faketime() -> str:
    """The library that lies about the time, or nothing where this machine has none."""
    return next((str(found) for found in sorted(Path("/usr/lib").glob(FAKETIME))), "")


class SoakPlace(drill_place.DrillPlace):
    """What `recovery.drills.surroundings.Surroundings` asks for."""

    env = {
        **drill_place.DrillPlace.env,
        "PROVIDER_KEY_LIFETIME_SECONDS": f"{soak.KEY_SECONDS:g}",
        "PROVIDER_OPEN_SECONDS_MAX": "2",  # an open circuit is waited for, within the time to come to rest
    }

    def __init__(self, stack: supervisor.Stack, wait: Callable[[Callable[[], bool], float], bool],
                 say: Callable[[str], None]) -> None:  # fmt: skip
        super().__init__(stack, wait, say)
        self._conditions: dict[str, Mapping[str, str]] = {}
        self._undo = contextlib.ExitStack()
        self._proxies = {
            line: self._undo.enter_context(proxy.Proxy(target))
            for line, target in self._targets().items()
        }
        self._staff = User.objects.create_superuser(f"soak-{self._hotel.code}")
        self.end(
            *drill_place.PROCESSES[1:]
        )  # all but the sandbox: they start anew behind the proxies

    @override
    def urls(self) -> list[str]:
        return [*super().urls(), *(f"tcp://{proxy.HOST}:{p.port}" for p in self._proxies.values())]

    @override
    def close(self) -> None:
        self._undo.close()
        super().close()

    def _targets(self) -> dict[tuple[str, str], proxy.Target]:
        """Each line, and what is at its other end. Servers that were given by address are never cut off."""
        url = urlsplit(self.stack.sandbox_url)
        provider = (str(url.hostname), int(url.port or 0))
        found: dict[tuple[str, str], proxy.Target] = {(who, PROVIDER): provider for who in CALLERS}
        for peer, name, socket in (
            (DATABASE, place.DATABASE, embedded.SOCKET),
            (BROKER, place.BROKER, "valkey.sock"),
        ):
            if name in self.own_servers:
                target = str(embedded.own[0].directory / socket)
                found |= {(who, peer): target for who in GROUPS}
        return found

    # --- lines and conditions ----------------------------------------------------------------------------------------

    def lines(self) -> Sequence[tuple[str, str]]:
        return list(self._proxies)

    def bend(self, line: tuple[str, str], mode: str, seconds: float = 0.0) -> None:
        self._proxies[line].mode(mode, seconds)

    def dead_lines(self) -> list[str]:
        """Lines that ought to carry and do not: then the soak itself is broken, and not what it tests."""
        found = []
        for (who, peer), between in self._proxies.items():
            try:
                _reach(peer, between.port)
            except (OSError, httpx2.HTTPError, redis.RedisError, psycopg.Error) as error:
                counts = f"{between.open} of {between.connections} connections open"
                found.append(f"the line between {who} and the {peer} is dead: {error!r}, {counts}")
        return found

    @override
    def env_of(self, name: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for (who, peer), between in self._proxies.items():
            if name in GROUPS[who]:
                found |= _address(peer, between.port)
        return {**found, **self._conditions.get(name, {})}

    def restart(self, name: str, env: Mapping[str, str]) -> None:
        """End a process and start it with this besides, now and whenever it is started again until `restore`."""
        self._conditions[name] = env
        self.end(name)
        self.start(name)

    def restore(self) -> None:
        """Every line carries, and every process runs in ordinary conditions."""
        for line in self._proxies:
            self.bend(line, "pass")
        changed = list(self._conditions)
        self._conditions.clear()
        self.end(*changed)
        self.start(*changed)

    def faketime(self) -> str:
        return faketime()

    # --- tickets -----------------------------------------------------------------------------------------------------

    def take_tickets(self, lanes: Sequence[str]) -> Tickets:
        """Whatever waits in these lanes is in nobody's lane any more."""
        found: Tickets = []
        with contextlib.suppress(*GONE), current_app.connection_for_write() as broker:
            client: Any = broker.default_channel.client  # type: ignore[attr-defined]  # Redis's
            for lane in lanes:
                waiting, _ = client.pipeline().lrange(lane, 0, -1).delete(lane).execute()
                found += [(lane, ticket) for ticket in waiting]
        return found

    def put_tickets(self, tickets: Tickets) -> None:
        """Into their lanes, in this order; where the broker is away they are lost, as tickets may be."""
        with contextlib.suppress(*GONE), current_app.connection_for_write() as broker:
            client: Any = broker.default_channel.client  # type: ignore[attr-defined]  # Redis's
            for lane, ticket in tickets:
                client.lpush(lane, ticket)

    # --- staff, and time gone by -------------------------------------------------------------------------------------

    def act(
        self, job: UUID, act: str, *, seen: int | None = None, evidence: Mapping[str, Any]
    ) -> str:
        """What became of it: done, stale (the job has moved on), refused for another reason, or cut short."""
        asked = acts.Asked(
            act=act, by=self._staff.get_username(), reason=REASON, evidence=dict(evidence)
        )
        try:
            resolutions.act(job, asked, by=self._staff, seen=seen)
        except acts.MovedOn:
            return "stale"
        except acts.ActRefused:
            return "refused"
        except Error:
            sql.replace_connection()
            return "cut short"
        return "done"

    def submit_plain(self, key: str) -> UUID:
        """A job of the drills' own saga that hurts nobody."""
        tenant = apps.get_model("ledger", "Tenant").objects.get(name=drill_place.TENANTS[0])
        found = submission.submit(
            tenant_id=tenant.id, key=key, saga=drill_saga.trip, request={"key": key}, input={}
        )
        return found.job_id

    def age(self, jobs: Sequence[UUID], days: int) -> None:
        """So many days pass for jobs that have ended. The guards would refuse it to anybody but the owner."""
        with transaction.atomic():
            sql.fetch("SET LOCAL session_replication_role = replica")
            sql.fetch(AGE, [days, list(jobs)])


def _reach(peer: str, port: int) -> None:
    """Ask this peer something, by way of the proxy."""
    if peer == PROVIDER:
        with clients.Sandbox(f"http://{proxy.HOST}:{port}") as sandbox:
            sandbox.summary()
    elif peer == BROKER:
        with redis.Redis(proxy.HOST, port, socket_timeout=REACH_SECONDS) as broker:
            broker.ping()
    else:
        given = f"connect_timeout={REACH_SECONDS}"
        psycopg.connect(f"{_address(peer, port)['DATABASE_URL']}&{given}").close()


def _address(peer: str, port: int) -> dict[str, str]:
    """What a process is told of this peer, so that it goes over the proxy."""
    here = f"{proxy.HOST}:{port}"
    options = "sslmode=disable&gssencmode=disable"  # the server itself speaks over a unix socket
    return {
        DATABASE: {"DATABASE_URL": f"postgresql://postgres:@{here}/{embedded.DATABASE}?{options}"},
        BROKER: {"BROKER_URL": f"redis://{here}/0"},
        PROVIDER: {"PAYMENT_URL": f"http://{here}", "TICKET_URL": f"http://{here}"},
    }[peer]

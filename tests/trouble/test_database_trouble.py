"""PostgreSQL dies, loses sessions and is cut off under real processes: nothing acknowledged is lost, and all of it ends.

A cluster of the test's own, with its data on disk. A client whose request failed sends it again under the same key, as
clients do; the provider's books are the second witness.
"""

import itertools
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection, connections
from pytest_django import DjangoDbBlocker

from config import programs
from ledger import crashpoints, engine, models
from recovery import proxy, sweeps
from tests import claims, psql
from tests.acceptance import deaths
from tests.acceptance import live as acceptance
from tests.acceptance.live import CAPTURE, Agent, Live
from tests.trouble import clients, servers

pytestmark = pytest.mark.timeout(120)
SECONDS = 45.0
ANSWERED_SECONDS = 8.0
JOBS = 40
NAMES = (programs.API, programs.WORKER, programs.SWEEPS, programs.BEAT)
ACTIVITY = """
SELECT pid FROM pg_stat_activity WHERE application_name IN ('amends-api', 'amends-worker') ORDER BY pid
"""


@dataclass
class Stack:
    live: Live
    server: servers.Postgres


@contextmanager
def connected_to(server: servers.Postgres) -> Iterator[None]:
    """Within the block this process works on that cluster's database, which is migrated."""
    known: dict[str, Any] = connection.settings_dict
    before = dict(known)
    connection.close()
    known |= {"NAME": server.NAME, "HOST": str(server.directory), "PORT": "", "USER": "postgres"}
    known |= {"PASSWORD": "", "OPTIONS": {k: v for k, v in known["OPTIONS"].items() if k != "host"}}
    try:
        call_command("migrate", verbosity=0)
        yield
    finally:
        connections.close_all()
        known |= before


@pytest.fixture(scope="module")
def stack(
    django_test_environment: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:
    with (
        django_db_blocker.unblock(),
        servers.Postgres() as server,
        connected_to(server),
        Live(tmp_path_factory.mktemp("stack"), 14) as live,
    ):
        live.start(programs.SANDBOX)
        live.start(*NAMES)
        yield Stack(live, server)


def assert_each_once(live: Live, agent: Agent, booked: list[UUID]) -> None:
    live.assert_each_once(booked, SECONDS)
    assert models.Job.objects.filter(tenant=agent.tenant).count() == len(booked)
    assert agent.small.taken()[:2] == [len(booked)] * 2
    assert live.stack.ended() == {}


def test_it_is_stopped_at_once_and_started_again_three_times_under_load(stack: Stack) -> None:
    live, agent = stack.live, stack.live.agent(capacity=200)
    client = clients.Client(agent)
    live.control("latency", mean_seconds=0.2)
    for _ in range(3):
        for _ in range(8):
            assert client.book()
        stack.server.kill(signal.SIGQUIT)
        assert [client.book() for _ in range(4)] == [False] * 4
        stack.server.start()
        connection.close()
    accepted = dict(client.accepted)
    assert len(accepted) == 24
    booked = client.insist()
    assert len(booked) == 36
    assert accepted.items() <= client.accepted.items()
    assert_each_once(live, agent, booked)
    live.be_honest()


def test_sessions_are_ended_at_random_under_load(stack: Stack) -> None:
    live, agent = stack.live, stack.live.agent(capacity=200)
    client, ended = clients.Client(agent), 0
    live.control("latency", mean_seconds=0.1)
    with psql.connected() as watch:
        for number in itertools.count():
            client.book()
            pids = [row[0] for row in watch.execute(ACTIVITY).fetchall()]
            if number % 2 and pids:
                watch.execute("SELECT pg_terminate_backend(%s)", [pids[number % len(pids)]])
                ended += 1
            if ended == 30:
                break
    booked = client.insist()
    assert_each_once(live, agent, booked)
    live.be_honest()
    log = live.stack.log(programs.WORKER).read_text()
    assert "write.repeated" in log or "local.repeated" in log


def test_connections_stay_few_and_go_back(stack: Stack) -> None:
    """One for each child that drives or sweeps and each thread of the API; the watcher and beat need none for long."""
    live, agent = stack.live, stack.live.agent(capacity=200)
    bounds = {"amends-api": 8, "amends-worker": 2 + 1}
    count = "SELECT application_name, count(*) FROM pg_stat_activity WHERE application_name LIKE 'amends-%' GROUP BY 1"
    with psql.connected() as watch:
        seen: dict[str, int] = {}
        booked = []
        for _ in range(40):
            booked.append(agent.book())
            for name, number in watch.execute(count).fetchall():
                seen[name] = max(seen.get(name, 0), number)
        assert_each_once(live, agent, booked)
        after = dict(watch.execute(count).fetchall())
    print(f"connections: at most {seen}, then {after}")  # noqa: T201  measured figures
    assert all(seen[name] <= bounds[name] for name in bounds)
    assert all(after[name] <= bounds[name] for name in bounds)


def test_a_worker_cut_off_for_longer_than_its_lease_writes_nothing_more(
    stack: Stack, settings: Any
) -> None:
    """Its call is on the wire when its database goes silent; another owner finds what became of it and goes on."""
    live, agent = stack.live, stack.live.agent()
    for name in (programs.BEAT, programs.SWEEPS, programs.WORKER):
        live.end(name)
    live.broker.flushdb()  # no ticket is left in the hands of the killed
    with proxy.Proxy(stack.server.socket) as between:
        url = (
            f"postgresql://postgres@{proxy.HOST}:{between.port}/{stack.server.NAME}?sslmode=disable"
        )
        live.start(programs.WORKER, env={"DATABASE_URL": url})
        live.rule("delay", match="capture", times=1, seconds=0.8)
        booking = agent.book()
        acceptance.until(lambda: acceptance.in_flight([booking], CAPTURE) == 1, SECONDS)
        between.mode("black_hole")
        job = live.job(booking)
        psql_expired = "SELECT lease_until < ledger_now() FROM ledger_job WHERE id = %s"
        with psql.connected() as watch:
            psql.await_true(watch, psql_expired, [job.id])
        settings.PAYMENT_URL = settings.TICKET_URL = live.stack.sandbox_url
        assert sweeps.reclaim().count == 1
        acceptance.until(
            lambda: engine.drive("forward") and live.job(booking).state == "confirmed", SECONDS
        )
        before = claims.snapshot(job.id)
        between.mode("pass")
        acceptance.until(live.is_silent, SECONDS)  # its run has ended
        assert claims.snapshot(job.id) == before
        assert live.kinds(booking) == ["capture", "ticket"]
        live.assert_books_agree([booking])
        again = agent.book()
        live.ended([again], "confirmed", SECONDS)
        live.assert_books_agree([again])
        live.end(programs.WORKER)
    live.start(programs.WORKER, programs.SWEEPS, programs.BEAT)  # as the others find them


def left_by_a_dead_worker(live: Live, agent: Agent) -> list[UUID]:
    """Bookings in the middle of their payment; their worker is gone with its watcher, and their leases are over."""
    booked = agent.book_many(JOBS)
    live.rule("hold", match="capture", answer=True, seconds=60.0)
    live.start(programs.WORKER)
    held = models.Job.objects.filter(tenant=agent.tenant, state="running")
    acceptance.until(lambda: held.count() == JOBS, SECONDS)
    live.end(programs.WORKER)
    live.control("release")
    live.be_honest()
    with psql.connected() as watch:
        expired = (
            "SELECT bool_and(lease_until < ledger_now()) FROM ledger_job WHERE state = 'running'"
        )
        psql.await_true(watch, expired)
    return booked


def test_a_restart_in_the_middle_of_a_sweep_leaves_no_job_behind(
    stack: Stack, tmp_path: Path
) -> None:
    """What one pass could not do is found by another: none keeps a list of what it has looked at."""
    live, agent = stack.live, stack.live.agent(capacity=2 * JOBS)
    for name in (programs.BEAT, programs.SWEEPS, programs.WORKER):
        live.end(name)
    live.broker.flushdb()
    booked = left_by_a_dead_worker(live, agent)
    fired = tmp_path / "fired"
    armed = {
        crashpoints.ARM_VARIABLE: "reclaim.before=pause@1",
        crashpoints.ONCE_VARIABLE: str(fired),
    }
    live.start(programs.SWEEPS, programs.BEAT, env=armed)
    acceptance.until(fired.exists, SECONDS)
    stack.server.kill(signal.SIGQUIT)
    stack.server.start()
    connection.close()
    deaths.signal_all(live.pool(programs.SWEEPS), signal.SIGCONT)
    jobs = models.Job.objects.filter(tenant=agent.tenant)
    acceptance.until(lambda: not jobs.filter(owner__isnull=False).exists(), SECONDS)
    assert dict(jobs.values_list("id", "leases_lost")) == {
        acceptance.job_of(booking): 1 for booking in booked
    }
    live.start(programs.WORKER)
    assert_each_once(live, agent, booked)

"""Whatever the broker does, bookings are accepted in time, none is lost or doubled, and work goes on afterwards.

Real processes, a broker of the test's own, and the proxy between them. A worker goes on by itself, or ends, which its
supervisor sees: Celery ends where the server answers with an error, and sometimes where it is lost in the middle of a
message. None lives on and hears nothing.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest

from config import programs
from ledger import models
from recovery import proxy
from tests.acceptance import live as acceptance
from tests.acceptance.live import Agent, Live
from tests.trouble import servers

pytestmark = pytest.mark.timeout(120)
ACCEPTED_SECONDS = 2.0
SECONDS = 45.0
NAMES = (programs.API, programs.WORKER, programs.SWEEPS, programs.BEAT)


@dataclass
class Broken:
    live: Live
    server: servers.Valkey
    between: proxy.Proxy

    @property
    def env(self) -> dict[str, str]:
        return {"BROKER_URL": f"redis://{proxy.HOST}:{self.between.port}/0"}


Act = Callable[[Broken], None]


@pytest.fixture(scope="module")
def stack(live: Live) -> Iterator[Broken]:
    with servers.Valkey() as server, proxy.Proxy(server.socket) as between:
        found = Broken(live, server, between)
        live.start(programs.SANDBOX)
        live.start(*NAMES, env=found.env)
        yield found
        for name in NAMES:
            live.end(name)


def flood(stack: Broken) -> None:
    """As a cache would be used: old keys go when new ones come."""
    with stack.server.client() as client:
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", used + 100_000)
        client.config_set("maxmemory-policy", "allkeys-lru")
        for number in range(200):
            client.set(f"cached-{number}", "x" * 5_000)
        assert client.info("stats")["evicted_keys"] > 0


def unlimited(stack: Broken) -> None:
    with stack.server.client() as client:
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")
        client.flushall()


def say(*command: str) -> Act:
    return lambda stack: stack.server.say(*command)


def mode(name: str) -> Act:
    return lambda stack: stack.between.mode(name)


def nothing(_stack: Broken) -> None:
    pass


@dataclass(frozen=True)
class Trouble:
    """`refuses` tickets for as long as it lasts. A worker may end of it, and is started again (`supervise`)."""

    begin: Act
    end: Act = nothing
    refuses: bool = False


TROUBLES = {
    "killed": Trouble(lambda s: s.server.kill(), lambda s: s.server.start(), refuses=True),
    "emptied": Trouble(say("FLUSHALL")),
    "clients_killed": Trouble(say("CLIENT", "KILL", "TYPE", "normal")),
    "paused": Trouble(say("CLIENT", "PAUSE", "5000", "ALL"), refuses=True),
    "evicting": Trouble(flood, unlimited),
    "partitioned": Trouble(mode("black_hole"), mode("pass"), refuses=True),
    "half_closed": Trouble(mode("half_close"), mode("pass"), refuses=True),
    "unreachable": Trouble(mode("refuse"), mode("pass"), refuses=True),
    "slow": Trouble(lambda s: s.between.mode("delay", 0.1), mode("pass")),
    "out_of_memory": Trouble(say("CONFIG", "SET", "maxmemory", "1"), unlimited, refuses=True),
    "read_only": Trouble(
        say("REPLICAOF", proxy.HOST, "1"),
        say("REPLICAOF", "NO", "ONE"),
        refuses=True,
    ),
}


def book_in_time(agent: Agent, count: int) -> list[UUID]:
    """So many bookings, each accepted in time."""
    booked, slowest = [], 0.0
    for _ in range(count):
        begun = time.monotonic()
        booked.append(agent.book())
        slowest = max(slowest, time.monotonic() - begun)
    assert slowest <= ACCEPTED_SECONDS
    return booked


def refusals(live: Live) -> int:
    """How many tickets of the API's the broker did not take."""
    return live.stack.log(programs.API).read_text().count("ticket.failed")


def supervise(stack: Broken, booked: list[UUID]) -> None:
    """Restart whoever has ended, as a container's supervisor does, until all of these are confirmed."""
    live = stack.live
    jobs = models.Job.objects.filter(id__in=[acceptance.job_of(booking) for booking in booked])

    def done() -> bool:
        for name in list(live.stack.ended()):
            print(f"{name} had ended")  # noqa: T201
            live.end(name)
            live.start(name, env=stack.env)
        return set(jobs.values_list("state", flat=True)) == {"confirmed"}

    acceptance.until(done, SECONDS)


@pytest.mark.parametrize("name", TROUBLES)
def test_nothing_is_lost_and_work_goes_on(stack: Broken, name: str) -> None:
    live, trouble = stack.live, TROUBLES[name]
    agent, refused = live.agent(capacity=500), refusals(live)
    booked = book_in_time(agent, 3)

    def is_refused() -> bool:
        """A process that has failed to publish says nothing for a while: until it tries again, there is more to tell."""
        if refusals(live) == refused:
            booked.extend(book_in_time(agent, 1))
        return refusals(live) > refused

    trouble.begin(stack)
    try:
        booked += book_in_time(agent, 6)
        if trouble.refuses:
            acceptance.until(is_refused, SECONDS)
    finally:
        trouble.end(stack)
    booked += book_in_time(agent, 3)
    supervise(stack, booked)
    live.assert_each_once(booked, SECONDS)


def test_all_of_the_broker_is_lost_during_300_submissions(stack: Broken) -> None:
    live, agent = stack.live, stack.live.agent(capacity=300)
    booked = book_in_time(agent, 100)
    stack.server.kill()
    booked += book_in_time(agent, 100)
    stack.server.start()
    booked += book_in_time(agent, 50)
    stack.server.say("FLUSHALL")
    booked += book_in_time(agent, 50)
    supervise(stack, booked)
    live.assert_each_once(booked, SECONDS)
    assert agent.small.taken()[:2] == [300, 300]

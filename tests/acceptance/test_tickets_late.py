"""Every ticket comes late, up to three leases, in another order, and some of them after all work has ended.

The promise: a ticket says that there is work and not which, so that nothing hangs on when it comes. A late one drives what
is there by then, or finds nothing. Whoever works on a lane listens to a broker of its own here, to which nobody publishes:
a carrier takes every ticket, sweeps' rings too, from where it was published, and delivers it when its time has come.
"""

import heapq
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, override
from uuid import UUID

import pytest
import redis

from config import programs
from ledger import models, selectors
from tests.acceptance import addresses
from tests.acceptance import live as acceptance
from tests.acceptance.live import LEASE_SECONDS, Agent, Live

pytestmark = pytest.mark.timeout(120)
SEED = 11
HELD_SECONDS_MAX = 3 * LEASE_SECONDS
KEPT = 0.25  # of all tickets: until the end
KEPT_MIN = 2  # of each lane: its first ones
JOBS = 80
SECONDS = 60.0
FORWARD, COMPENSATION = "forward", "compensation"
RECEIVED = re.compile(r"Task ledger\.drive\[[0-9a-f-]+\] received")
APART = 5  # a parallel run's processes have the numbers next to ours


class Carrier(threading.Thread):
    """Takes tickets out of some brokers' lanes, and puts each into the broker of its lane after a time of its own."""

    def __init__(self, sources: list[tuple[redis.Redis, str]], targets: dict[str, redis.Redis]):
        super().__init__(name="carrier", daemon=True)
        self.delivered = self.overtaken = self.after_a_lease = 0
        self.kept: list[tuple[str, bytes]] = []
        self.keeps_all = False
        self._sources, self._targets = sources, targets
        self._held: list[tuple[float, int, float, str, bytes]] = []
        self._chance, self._done = random.Random(SEED), threading.Event()  # noqa: S311
        self._taken = self._newest = 0

    @override
    def run(self) -> None:
        while not self._done.wait(0.01):
            self._take()
            while self._held and self._held[0][0] <= time.monotonic():
                _, number, taken_at, lane, ticket = heapq.heappop(self._held)
                self.overtaken += number < self._newest
                self.after_a_lease += time.monotonic() - taken_at > LEASE_SECONDS
                self._newest = max(self._newest, number)
                self.deliver(lane, ticket)

    def deliver(self, lane: str, ticket: bytes) -> None:
        self._targets[lane].lpush(lane, ticket)
        self.delivered += 1

    def is_empty(self) -> bool:
        return not self._held

    def end(self) -> None:
        self._done.set()
        self.join()

    def _take(self) -> None:
        for source, lane in self._sources:
            while (ticket := source.rpop(lane)) is not None:
                assert isinstance(ticket, bytes)
                self._taken += 1
                few = sum(its == lane for its, _ in self.kept) < KEPT_MIN
                if few or self.keeps_all or self._chance.random() < KEPT:
                    self.kept.append((lane, ticket))
                    continue
                now = time.monotonic()
                due = now + self._chance.uniform(0, HELD_SECONDS_MAX)
                heapq.heappush(self._held, (due, self._taken, now, lane, ticket))


class Post:
    """The fleet, and the carrier between those who publish and those who work."""

    def __init__(self, live: Live) -> None:
        own = live.broker.connection_pool.connection_kwargs["db"]
        self.live = live
        self._numbers = {FORWARD: own, COMPENSATION: own - APART, "": own - 2 * APART}
        self._brokers = {name: addresses.broker(n) for name, n in self._numbers.items()}
        sources = [
            (broker, lane)
            for name, broker in self._brokers.items()
            for lane in (FORWARD, COMPENSATION)
            if lane != name
        ]
        self.carrier = Carrier(sources, self._brokers)

    def __enter__(self) -> "Post":
        self._empty()
        self.live.start(programs.SANDBOX)
        self.live.start(programs.API, programs.SWEEPS, programs.BEAT, env=self._of(""))
        self.live.start(programs.WORKER, env=self._of(FORWARD))
        self.live.start(programs.COMPENSATION, env=self._of(COMPENSATION))
        self.carrier.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.carrier.end()
        for name in (programs.BEAT, programs.SWEEPS, programs.WORKER, programs.COMPENSATION):
            self.live.end(name)
        self._empty()
        for broker in self._brokers.values():
            broker.close()

    def is_silent(self) -> bool:
        """Whatever was delivered has been driven, to its end."""
        lanes = [(self._brokers[lane], lane) for lane in (FORWARD, COMPENSATION)]
        return all(b.llen(lane) == 0 and b.hlen("unacked") == 0 for b, lane in lanes)

    def received(self) -> int:
        logs = [self.live.stack.log(name) for name in (programs.WORKER, programs.COMPENSATION)]
        return sum(len(RECEIVED.findall(log.read_text())) for log in logs)

    def _of(self, name: str) -> dict[str, str]:
        return {"BROKER_URL": addresses.broker_url(self._numbers[name])}

    def _empty(self) -> None:
        for broker in self._brokers.values():
            broker.flushdb()


@pytest.fixture
def post(live: Live) -> Iterator[Post]:
    with Post(live) as found:
        yield found


def stands(live: Live, bookings: list[UUID]) -> list[tuple[Any, ...]]:
    """All that a late ticket could change: the job's row, its receipts, the provider's requests and effects."""
    return [
        (
            models.Job.objects.filter(id=acceptance.job_of(booking)).values().get(),
            acceptance.outcomes(booking),
            live.requests(booking),
            live.effects(booking),
        )
        for booking in bookings
    ]


def wait_ended(live: Live, agent: Agent) -> Counter[str]:
    jobs = models.Job.objects.filter(tenant=agent.tenant)
    acceptance.until(
        lambda: not jobs.filter(finished_at=None).exists(),
        SECONDS,
        lambda: live._explain(Counter(jobs.values_list("state", flat=True))),
    )
    return Counter(jobs.values_list("state", flat=True))


def test_late_and_in_any_order_each_ticket_finds_what_is_there_or_nothing(post: Post) -> None:
    live, carrier = post.live, post.carrier
    live.rule("refuse", match="ticket", probability=0.3, code="no_ticket")
    agent = live.agent(capacity=JOBS + 1)
    bookings = agent.book_many(JOBS)
    ended = wait_ended(live, agent)
    assert set(ended) == {"confirmed", "compensated"}
    acceptance.until(carrier.is_empty, HELD_SECONDS_MAX + 5)
    acceptance.until(post.is_silent, SECONDS)
    assert carrier.overtaken > carrier.delivered // 4
    assert carrier.after_a_lease > carrier.delivered // 4

    carrier.keeps_all = True
    before, late = stands(live, bookings), carrier.kept.copy()
    old = late.pop(next(n for n, (lane, _) in enumerate(late) if lane == FORWARD))
    for lane, ticket in late:
        carrier.deliver(lane, ticket)
    acceptance.until(post.is_silent, SECONDS)
    assert post.received() >= carrier.delivered
    assert stands(live, bookings) == before
    print(f"{carrier.delivered} tickets, {len(late)} absorbed after the end")  # noqa: T201  a measured figure

    live.be_honest()
    one_more = agent.book()
    acceptance.until(lambda: FORWARD in selectors.runnable_lanes(), SECONDS)
    carrier.deliver(*old)  # it was published before this booking was made
    live.ended([one_more], "confirmed", SECONDS)
    bookings.append(one_more)
    assert {lane for lane, _ in late} == {FORWARD, COMPENSATION}
    assert live.net(bookings) == 20_000 * (ended["confirmed"] + 1)
    assert agent.small.taken()[:2] == [ended["confirmed"] + 1] * 2
    live.assert_books_agree(bookings)

"""Virtual threads: what a process's pool does, with calls that begin, land and answer when virtual time says so.

As in `ledger.calls`: the lease is checked right before the first byte, a call past its deadline is given up and its late
answer handed out as such. A process that is paused sends and hears nothing meanwhile; one that is dead never hears, and
what it had sent lands all the same.
"""

import heapq
import random
from collections.abc import Callable, Iterator
from itertools import count
from uuid import UUID

from ledger import calls, clock, crashpoints, outcomes
from recovery.simulation.provider import Provider
from recovery.simulation.senders import Life, Sender
from recovery.simulation.virtual import VirtualClock

Happening = Callable[[], None]


class Agenda:
    """What will happen, in order of time; what is due happens when the scheduler says so."""

    def __init__(self, now: VirtualClock) -> None:
        self._clock = now
        self._heap: list[tuple[int, int, Life | None, UUID | None, Happening]] = []
        self._numbers = count()

    def later(self, seconds: float, what: Happening, life: Life | None = None) -> None:
        due = self._clock.micros + max(0, round(seconds * 1e6))
        owner = life.owner if life else None
        heapq.heappush(self._heap, (due, next(self._numbers), life, owner, what))

    def next_at(self) -> int | None:
        """When the next thing is due, of anybody who is not paused."""
        return min((e[0] for e in self._heap if not _is(e[2], "is_paused")), default=None)

    def due(self) -> Iterator[tuple[Life | None, Happening]]:
        """Everything that is due, one by one; what a paused process has to do waits for it."""
        while True:
            entry = min(
                (
                    e
                    for e in self._heap
                    if e[0] <= self._clock.micros and not _is(e[2], "is_paused")
                ),
                key=lambda e: e[:2],
                default=None,
            )
            if entry is None:
                return
            self._heap.remove(entry)
            heapq.heapify(self._heap)
            life, owner, what = entry[2:]
            if life is None or not (life.is_dead or life.owner != owner):
                yield life, what


class Wire:
    """The calls of one process."""

    def __init__(
        self, life: Life, agenda: Agenda, provider: Provider, draw: random.Random, slots: int
    ) -> None:
        self.slots = slots
        self._life, self._agenda, self._provider, self._draw = life, agenda, provider, draw
        self._in_flight: dict[int, calls.Placed] = {}
        self._done: list[calls.Placed] = []

    def free(self) -> int:
        return self.slots - len(self._in_flight)

    def place(self, placed: calls.Placed) -> None:
        self._in_flight[id(placed)] = placed
        wait = self._draw.choice((0.0, 0.001, 0.05))
        self._agenda.later(wait, lambda: self._begin(placed), self._life)

    def returned(self, seconds: float) -> Iterator[calls.Placed]:
        now = clock.monotonic()
        for placed in [p for p in self._in_flight.values() if p.overdue(now)]:
            if placed.outcome is None:
                placed.abandoned = True
                del self._in_flight[id(placed)]
                yield placed
        while self._done:
            placed = self._done.pop(0)
            self._in_flight.pop(id(placed), None)
            yield placed

    def withdraw(self) -> None:
        for placed in self._in_flight.values():
            placed.withdrawn = True

    def has_news(self) -> bool:
        now = clock.monotonic()
        return bool(self._done) or any(p.overdue(now) for p in self._in_flight.values())

    def _begin(self, placed: calls.Placed) -> None:
        left = placed.owner.lease_deadline - clock.monotonic()
        if placed.withdrawn or left < placed.call.timeout_seconds + calls.ABANDON_GRACE_SECONDS:
            reason = "released" if placed.withdrawn else "lease_too_short"
            self._hear(placed, outcomes.NotSent(reason, released=True))
            return
        checked_at, sender = round(clock.monotonic() * 1e6), None
        if placed.kind == "call":
            call = placed.call
            sender = self._provider.senders.begin(call.operation_id, call.n, checked_at, self._life)
        crashpoints.reach(f"{placed.kind}.before")
        placed.started_at = clock.monotonic()
        self._provider.sender = sender
        outcome = calls.outcome_of(placed.handler, placed.call)
        name = "not_landed" if isinstance(outcome, outcomes.NotLanded) else _name(outcome)
        if placed.kind == "call":
            key = (placed.call.operation_id, placed.call.n)
            self._provider.told.setdefault(key, set()).add(name)
        wait = self._provider.reply_after
        limit = placed.call.timeout_seconds + calls.ABANDON_GRACE_SECONDS
        if wait > limit:  # time stops there, for its process to give it up
            self._agenda.later(limit + 0.001, lambda: None, self._life)
        self._agenda.later(wait, lambda: self._answer(placed, outcome, sender), self._life)

    def _answer(
        self, placed: calls.Placed, outcome: outcomes.Sighted, sender: Sender | None
    ) -> None:
        if sender is not None:
            sender.is_back = True
        crashpoints.reach(f"{placed.kind}.after")
        self._hear(placed, outcome)

    def _hear(self, placed: calls.Placed, outcome: outcomes.Sighted) -> None:
        placed.returned_at, placed.outcome = clock.monotonic(), outcome
        self._done.append(placed)


def _is(life: Life | None, what: str) -> bool:
    return life is not None and bool(getattr(life, what))


def _name(outcome: outcomes.Sighted) -> str:
    names: dict[type, str] = {
        outcomes.Confirmed: "confirmed",
        outcomes.Refused: "refused",
        outcomes.NotSent: "not_sent",
        outcomes.Throttled: "throttled",
    }
    return names.get(type(outcome), "unknown")

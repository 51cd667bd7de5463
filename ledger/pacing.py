"""When a provider may be called: what its rate, its own word, an open circuit, a pause or its concurrency allow. Pure.

The promise: in any second the provider sees at most `rate` calls, each lane's part of it rounded up, of all processes
together. A call begins at its permit's time or at most LATE after it, or not at all, and may be WIRE on its way; so permits
stand (1 + LATE + WIRE) / rate apart, and a second never holds more of them, late or not. That costs a sixth of the rate. The
lanes have a part each, so that neither can hold up the other.

Whatever does not fit in the next second comes back later, one after the other, and waits in no slot until then.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ledger.outcomes import ReceiptOutcome
from ledger.states import JOB_LANES, Lane

HORIZON = timedelta(seconds=1)  # permits are given out so far ahead
LEAD = timedelta(
    milliseconds=50
)  # for the commits between a permit and its call; doubled after each that was too late
LEAD_MAX = timedelta(milliseconds=800)
LATE = timedelta(milliseconds=100)  # a call that is later than this after its time is not made
WIRE = timedelta(
    milliseconds=100
)  # and it is there within this: the first byte of one may overtake that of another
EARLY = timedelta(milliseconds=500)  # before its turn a job comes back: promotion is not punctual
SPREAD = timedelta(milliseconds=20)  # between those who come back, where no rate says more
CALL_GUESS = timedelta(milliseconds=100)  # of a call, where only concurrency bounds
LOOK = timedelta(seconds=1)  # until somebody asks how the one call through an open circuit went
WAIT_MAX = timedelta(seconds=60)  # a queue is an estimate: look again after this
PAUSED = timedelta(seconds=30)
SPACING_MAX = timedelta(days=1)  # whatever the rate is: times must stay within the calendar
PAST = datetime(1970, 1, 1, tzinfo=UTC)
DEFINITE = frozenset(
    {ReceiptOutcome.CONFIRMED, ReceiptOutcome.REFUSED, ReceiptOutcome.THROTTLED, "not_landed"}
)


@dataclass(frozen=True, slots=True)
class Policy:
    """`throttle_max` bounds what a provider may ask of the whole fleet. A circuit opens after `failures_max` calls in a row
    without a definite answer, for `open_for`, doubling to `open_max`; its one call is given up after `try_for`.
    """

    throttle_max: timedelta
    failures_max: int
    open_for: timedelta
    open_max: timedelta
    try_for: timedelta


@dataclass(frozen=True, slots=True)
class Heard:
    """What a call, or a question, brought. `after`: the patience that it asks for, throttled or not."""

    outcome: str
    after: timedelta = timedelta()

    def is_trouble(self) -> bool:
        return self.outcome not in DEFINITE or self.outcome == ReceiptOutcome.THROTTLED


@dataclass(frozen=True, slots=True)
class Leave:
    """A permit and the time of its call; or the time at which to ask again."""

    at: datetime
    is_permit: bool


@dataclass(slots=True)
class Queue:
    """One lane. `free_at`: when its next call may begin; `queued_until`: when the last who was put off comes back."""

    free_at: datetime = PAST
    queued_until: datetime = PAST


@dataclass(slots=True)
class Provider:
    """How a provider may be called now. `opened` counts openings in a row; `is_tried`: the one call is out; `voids`: of
    those who ask now, how many permits in a row were void.
    """

    name: str
    is_paused: bool = False
    rate: float | None = None
    compensation_share: float = 0.2
    concurrency: int | None = None
    throttled_until: datetime = PAST
    failures: int = 0
    opened: int = 0
    open_until: datetime = PAST
    is_tried: bool = False
    voids: int = 0
    queues: dict[str, Queue] = field(default_factory=lambda: {lane: Queue() for lane in JOB_LANES})

    def spacing(self, lane: str) -> timedelta:
        """Between two permits of the lane; nothing without a rate."""
        if self.rate is None:
            return timedelta()
        part = self.compensation_share if lane == Lane.COMPENSATION else 1 - self.compensation_share
        longest = SPACING_MAX.total_seconds()
        seconds = (1 + (LATE + WIRE).total_seconds()) / max(self.rate * part, 1 / longest)
        return timedelta(microseconds=math.ceil(min(seconds, longest) * 1e6))

    def gate(self, now: datetime) -> datetime:
        """Before this nobody may call, whatever the lane. Where commits take long, a fixed lead makes every permit void,
        for ever.
        """
        lead = min(LEAD * (1 << min(self.voids, 10)), LEAD_MAX)
        ready = now if self.rate is None else now + lead
        return max(ready, self.throttled_until, self.open_until if self.opened else PAST)

    def room(self, lane: str, under_way: Mapping[str, int]) -> int | None:
        """Calls that concurrency still allows. Of more than one, the compensation lane keeps its part."""
        if self.concurrency is None:
            return None
        left = self.concurrency - sum(under_way.values())
        if lane != Lane.COMPENSATION and self.concurrency > 1:
            kept = math.ceil(self.concurrency * self.compensation_share)
            left -= max(0, kept - under_way.get(Lane.COMPENSATION, 0))
        return max(0, left)


def hear(provider: Provider, heard: Sequence[Heard], now: datetime, policy: Policy) -> None:
    """Take in what came back, in order."""
    for one in heard:
        if one.outcome in DEFINITE:
            provider.failures = provider.opened = 0
            provider.is_tried = False
        else:
            _fail(provider, now, policy)
        if one.after:
            until = now + min(one.after, policy.throttle_max)
            provider.throttled_until = max(provider.throttled_until, until)


def _fail(provider: Provider, now: datetime, policy: Policy) -> None:
    provider.failures += 1
    if provider.opened and not provider.is_tried:
        return  # of a call from before it opened
    if provider.opened or provider.failures >= policy.failures_max:
        doubled = policy.open_for * (1 << min(provider.opened, 20))
        provider.opened += 1
        provider.open_until = now + min(doubled, policy.open_max)
        provider.is_tried = False


def limit(
    provider: Provider,
    *,
    rate: float | None,
    compensation_share: float,
) -> None:
    """Other limits from now on: a lane's next call is as far from its last permit as they say, and nobody waits for what the
    old ones came to.
    """
    last = {lane: provider.queues[lane].free_at - provider.spacing(lane) for lane in JOB_LANES}
    provider.rate, provider.compensation_share = rate, compensation_share
    for lane, at in last.items():
        provider.queues[lane] = Queue(max(PAST, at + provider.spacing(lane)))


def share_out(
    provider: Provider,
    lane: str,
    draws: Sequence[float],
    now: datetime,
    *,
    room: int | None,
    policy: Policy,
) -> list[Leave]:
    """For as many jobs as there are `draws` (0 to 1, of each job its own): permits first, then times to come back."""
    most = len(draws) if room is None else min(room, len(draws))
    permits = _permits(provider, lane, most, now)
    if permits and provider.opened:
        provider.is_tried, provider.open_until = True, now + policy.try_for
    return [Leave(at, is_permit=True) for at in permits] + [
        Leave(at, is_permit=False) for at in _returns(provider, lane, draws[len(permits) :], now)
    ]


def _permits(provider: Provider, lane: str, most: int, now: datetime) -> list[datetime]:
    if provider.is_paused:
        return []
    queue, spacing = provider.queues[lane], provider.spacing(lane)
    at, last = max(queue.free_at, provider.gate(now)), now + (HORIZON if spacing else timedelta())
    found: list[datetime] = []
    while len(found) < (min(most, 1) if provider.opened else most) and at <= last:
        found.append(at)
        at += spacing
    if found and spacing:
        queue.free_at = at
    return found


def _returns(
    provider: Provider, lane: str, draws: Sequence[float], now: datetime
) -> list[datetime]:
    """When those without a permit ask again: never before the gate, and not all at once."""
    if provider.is_paused or not draws:
        return [now + PAUSED * (0.5 + draw / 2) for draw in draws]
    queue, spacing = provider.queues[lane], provider.spacing(lane)
    gate = now + LOOK if provider.opened and provider.is_tried else provider.gate(now)
    gap = max(spacing, CALL_GUESS / provider.concurrency if provider.concurrency else SPREAD)
    turn = max(gate, queue.queued_until, queue.free_at if spacing else PAST)
    found = []
    for draw in draws:
        turn += gap
        due = max(gate, turn - EARLY) if spacing else turn
        found.append(min(due, gate + WAIT_MAX * (0.5 + draw / 2)))
    queue.queued_until = min(turn, gate + WAIT_MAX)
    return found

"""Where a job stands, judged from its journal: the classes of the report, and what they add up to. Pure.

The promise: every job is in exactly one class, the first that matches, and nothing counts as recovered that the journal
does not prove. A state alone is never believed: a job that says it has ended, and whose journal does not bear that out,
is an unknown outcome. Amounts are those frozen with attempt 1, integers in minor units, per currency.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ledger import operations
from ledger.operations import Entry, Key, Operation, Receipt, Resolution
from ledger.saga import Direction
from ledger.states import ENDED, JobState, ParkedReason

Operations = Mapping[Key, Operation]
CLOSING = frozenset({"close-proposed", "close"})  # two people: one proposes, another one closes
UNKNOWN_REASONS = frozenset({ParkedReason.UNKNOWN_OUTCOME, ParkedReason.CONTRADICTION})


class Standing(StrEnum):
    """The classes, in the order in which they are tried."""

    SETTLED_BY_HAND = "settled_by_hand"
    UNKNOWN_OUTCOME = "unknown_outcome"
    COMPENSATION_PENDING = "compensation_pending"
    PARKED_FORWARD = "parked_forward"
    CONFIRMED = "confirmed"
    COMPLETED_RECOVERY = "completed_recovery"
    CONFIRMED_FAILURE = "confirmed_failure"
    IN_PROGRESS = "in_progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is judged beside the journal. `steps` are those of its saga; None where this build does not know that version,
    and then the journal's own are all there is. `is_leased`: under a live lease.
    """

    state: JobState
    direction: Direction
    steps: Sequence[str] | None
    parked_reason: str = ""
    is_leased: bool = False
    leases_lost: int = 0
    age_seconds: int = 0


def classify(job: Job, journal: Sequence[Entry]) -> Standing:
    """The one class of a job."""
    return _classify(job, journal, operations.fold(journal))


def _classify(job: Job, journal: Sequence[Entry], ops: Operations) -> Standing:
    if job.state is JobState.CLOSED and _is_closed_by_two(journal):
        return Standing.SETTLED_BY_HAND
    if _is_unknown(job, ops):
        return Standing.UNKNOWN_OUTCOME
    if job.state in ENDED:
        return _how_it_ended(job, ops)
    if job.direction is Direction.BACKWARD:
        return Standing.COMPENSATION_PENDING
    return Standing.PARKED_FORWARD if job.state is JobState.PARKED else Standing.IN_PROGRESS


def _is_closed_by_two(journal: Iterable[Entry]) -> bool:
    people = {e.by for e in journal if isinstance(e, Resolution) and e.act in CLOSING}
    return len(people) > 1


def _is_unknown(job: Job, ops: Operations) -> bool:
    if job.parked_reason in UNKNOWN_REASONS:
        return True
    doubt = any(op.doubtful() for op in ops.values())
    return (doubt and not job.is_leased) or any(op.contradiction() for op in ops.values())


def _how_it_ended(job: Job, ops: Operations) -> Standing:
    """Every claim of an end needs its receipts; without them nobody knows."""
    happened = {step for step, op in _of(ops, Direction.FORWARD) if op.is_confirmed()}
    undone = {step for step, op in _of(ops, Direction.BACKWARD) if op.is_confirmed()}
    if job.state is JobState.CONFIRMED:
        wanted = job.steps if job.steps is not None else [s for s, _ in _of(ops, Direction.FORWARD)]
        is_whole = bool(wanted) and set(wanted) <= happened and not undone
        return Standing.CONFIRMED if is_whole else Standing.UNKNOWN_OUTCOME
    if (
        job.state is JobState.CLOSED or happened != undone
    ):  # given back without having been taken, too
        return Standing.UNKNOWN_OUTCOME
    return Standing.COMPLETED_RECOVERY if happened else Standing.CONFIRMED_FAILURE


def _of(ops: Operations, direction: Direction) -> Iterator[tuple[str, Operation]]:
    return ((step, op) for (step, of), op in ops.items() if of is direction)


@dataclass(slots=True)
class Amounts:
    """Of one currency, in minor units. At risk: what is in doubt or contradicted, in either direction."""

    captured: int = 0
    refunded: int = 0
    at_risk: int = 0

    @property
    def held(self) -> int:
        return self.captured - self.refunded


Money = dict[str, Amounts]


def money(ops: Operations) -> Money:
    """What the journal says was taken, given back, and may or may not have been."""
    found: Money = {}
    for (step, direction), op in ops.items():
        amount = _amount(ops, step, direction)
        if amount is None:
            continue
        minor, currency = amount
        amounts = found.setdefault(currency, Amounts())
        if op.is_confirmed() and direction is Direction.FORWARD:
            amounts.captured += minor
        elif op.is_confirmed():
            amounts.refunded += minor
        if op.doubtful() or op.contradiction() is not None:
            amounts.at_risk += minor
    return found


def _amount(ops: Operations, step: str, direction: Direction) -> tuple[int, str] | None:
    """An operation's own amount; an undo that names none takes back what its step did."""
    for of in (direction, Direction.FORWARD):
        op = ops.get((step, of))
        if op is not None and op.attempts:
            amount = _priced(op.attempts[0].arguments)
            if amount is not None:
                return amount
    return None


def cost(journal: Iterable[Entry]) -> Counter[str]:
    """The provider's fees, per currency, as receipts state them."""
    found: Counter[str] = Counter()
    for entry in journal:
        fee = _priced(entry.evidence.get("cost")) if isinstance(entry, Receipt) else None
        if fee is not None:
            found[fee[1]] += fee[0]
    return found


def _priced(stored: Any) -> tuple[int, str] | None:
    """(minor units, currency), where that is what is stored: evidence is other people's."""
    if not isinstance(stored, Mapping):
        return None
    minor, currency = stored.get("amount_minor"), stored.get("currency")
    if isinstance(minor, bool) or not isinstance(minor, int) or not isinstance(currency, str):
        return None
    return minor, currency


@dataclass(slots=True)
class Line:
    """One class of a report, added up."""

    jobs: int = 0
    money: Money = field(default_factory=dict)
    cost: Counter[str] = field(default_factory=Counter)
    receipts: Counter[str] = field(default_factory=Counter)
    parked: Counter[str] = field(default_factory=Counter)
    recovered_forward: int = 0
    oldest_seconds: int | None = None

    def add(self, job: Job, journal: Sequence[Entry], ops: Operations) -> None:
        self.jobs += 1
        for currency, amounts in money(ops).items():
            total = self.money.setdefault(currency, Amounts())
            total.captured += amounts.captured
            total.refunded += amounts.refunded
            total.at_risk += amounts.at_risk
        self.cost.update(cost(journal))
        self.receipts.update(str(e.outcome) for e in journal if isinstance(e, Receipt))
        self.parked.update([job.parked_reason] if job.parked_reason else [])
        self.recovered_forward += int(job.state is JobState.CONFIRMED and job.leases_lost > 0)
        self.oldest_seconds = max(self.oldest_seconds or 0, job.age_seconds)


def _lines() -> dict[Standing, Line]:
    return {standing: Line() for standing in Standing}


@dataclass(slots=True)
class Report:
    """All classes, the empty ones too. Holds sums and no job, so that it is as small for a million."""

    lines: dict[Standing, Line] = field(default_factory=_lines)

    def add(self, job: Job, journal: Sequence[Entry]) -> Standing:
        ops = operations.fold(journal)
        standing = _classify(job, journal, ops)
        self.lines[standing].add(job, journal, ops)
        return standing

    @property
    def total(self) -> int:
        return sum(line.jobs for line in self.lines.values())

"""The journal of one job, folded into its operations: what is known of each, and what is in doubt. Pure.

Rows come in journal order. An attempt is *proved unsent* by a receipt `not_sent` or `throttled`; it is *in doubt* with
no receipt at all (its sender died) or with `unknown`; the first `confirmed` or `refused` settles the whole operation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ledger.outcomes import FINAL_OUTCOMES, ReceiptOutcome
from ledger.saga import Direction, Done

THROTTLE_MAX = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The row committed before a send. Attempt 1 carries the frozen arguments."""

    step: str
    direction: Direction
    n: int
    fence: int
    at: datetime
    fingerprint: bytes
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    step: str
    direction: Direction
    n: int
    outcome: ReceiptOutcome
    evidence: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class Sighting:
    """Evidence from someone without authority: kind `probe`, `late` (an answer after its deadline) or `sender_lost`."""

    step: str
    direction: Direction
    n: int
    kind: str
    outcome: str
    evidence: Mapping[str, Any]
    at: datetime


Entry = Attempt | Receipt | Sighting
Key = tuple[str, Direction]


@dataclass(slots=True)
class Operation:
    """All that the journal says about one direction of one step."""

    attempts: list[Attempt] = field(default_factory=list)
    receipts: dict[int, Receipt] = field(default_factory=dict)
    sightings: list[Sighting] = field(default_factory=list)
    final: Receipt | None = None

    def is_confirmed(self) -> bool:
        return self.final is not None and self.final.outcome is ReceiptOutcome.CONFIRMED

    def is_refused(self) -> bool:
        return self.final is not None and self.final.outcome is ReceiptOutcome.REFUSED

    def doubtful(self) -> list[Attempt]:
        """Attempts that may have had an effect which nobody has seen."""
        if self.final is not None:
            return []
        return [a for a in self.attempts if self._outcome(a) in (None, ReceiptOutcome.UNKNOWN)]

    def is_proved_unsent(self) -> bool:
        return bool(self.attempts) and self.final is None and not self.doubtful()

    def budget_used(self) -> int:
        """Attempts that count: unknown, without a receipt, or failed to connect; not throttled ones or those released."""
        return sum(1 for a in self.attempts if self._counts(a))

    def last(self) -> Attempt:
        return self.attempts[-1]

    def last_receipt(self) -> Receipt | None:
        return self.receipts.get(self.last().n)

    def probes_since_last_attempt(self) -> list[Sighting]:
        return [s for s in self.sightings if s.kind == "probe" and s.at >= self.last().at]

    def deciding_sighting(self) -> Sighting | None:
        """Evidence, from a probe or a late answer, that settles the operation."""
        if self.final is not None:
            return None
        return next((s for s in self.sightings if s.outcome in FINAL_OUTCOMES), None)

    def done(self) -> Done:
        assert self.final is not None, "only a settled operation has results"
        evidence = self.final.evidence
        return Done(ref=evidence.get("ref", ""), data=evidence.get("data", {}))

    def _outcome(self, attempt: Attempt) -> ReceiptOutcome | None:
        receipt = self.receipts.get(attempt.n)
        return receipt.outcome if receipt else None

    def _counts(self, attempt: Attempt) -> bool:
        receipt = self.receipts.get(attempt.n)
        if receipt is None or receipt.outcome is ReceiptOutcome.UNKNOWN:
            return True
        return receipt.outcome is ReceiptOutcome.NOT_SENT and not receipt.evidence.get("released")


def fold(entries: Iterable[Entry]) -> dict[Key, Operation]:
    """The operations of a journal, in order of first appearance."""
    operations: dict[Key, Operation] = {}
    for entry in entries:
        operation = operations.setdefault((entry.step, entry.direction), Operation())
        match entry:
            case Attempt():
                operation.attempts.append(entry)
            case Receipt():
                operation.receipts[entry.n] = entry
                if entry.outcome in FINAL_OUTCOMES and operation.final is None:
                    operation.final = entry
            case Sighting():
                operation.sightings.append(entry)
    return operations


def confirmed_forward(operations: Mapping[Key, Operation]) -> dict[str, Done]:
    """What later arguments are derived from: the confirmed forward operations, by step name."""
    return {
        step: operation.done()
        for (step, direction), operation in operations.items()
        if direction is Direction.FORWARD and operation.is_confirmed()
    }


def throttled_after(answer: Receipt | Sighting) -> timedelta:
    """How long the provider asked us to wait, at most THROTTLE_MAX: nonsense must not strand a job."""
    return min(THROTTLE_MAX, timedelta(seconds=float(answer.evidence.get("after_seconds", "1"))))

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
    """What became of an attempt. An `unknown` one whose thread was given up says so: `abandoned` in its evidence."""

    step: str
    direction: Direction
    n: int
    outcome: ReceiptOutcome
    evidence: Mapping[str, Any]
    at: datetime
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """Evidence from someone without authority.

    probe        a provider's answer to a question
    tombstone    its answer to being told to refuse the id: `refused` when it will
    late         what a sender brought after it had been given up, or had lost its job
    sender_lost  a reclaim's word on an open attempt: `how` its owner was lost, `lease_until` its lease's end
    """

    step: str
    direction: Direction
    n: int
    kind: str
    outcome: str
    evidence: Mapping[str, Any]
    at: datetime
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """A person's act. On the job as a whole (take, note, close, compensate) `step` is empty."""

    step: str
    direction: Direction
    act: str
    by: str
    evidence: Mapping[str, Any]
    at: datetime


Entry = Attempt | Receipt | Sighting | Resolution
Key = tuple[str, Direction]


RULED = {"done": ReceiptOutcome.CONFIRMED, "not-done": ReceiptOutcome.REFUSED}
FRESH = frozenset({"retry", "ask"})  # acts that give new budgets


@dataclass(slots=True)
class Operation:
    """All that the journal says about one direction of one step.

    `final` is the receipt that settles it, or one made of a person's ruling, which outweighs what came before it.
    """

    attempts: list[Attempt] = field(default_factory=list)
    receipts: dict[int, Receipt] = field(default_factory=dict)
    sightings: list[Sighting] = field(default_factory=list)
    resolutions: list[Resolution] = field(default_factory=list)
    final: Receipt | None = None

    def take(self, entry: Entry) -> None:
        """One more row, in the order of its table; attempts and receipts come before a person's acts."""
        match entry:
            case Attempt():
                self.attempts.append(entry)
            case Receipt():
                self.receipts[entry.n] = entry
                if entry.outcome in FINAL_OUTCOMES and self.final is None:
                    self.final = entry
            case Sighting():
                self.sightings.append(entry)
            case Resolution():
                self.resolutions.append(entry)
                if entry.act in RULED:
                    self.final = _ruling(entry, self)

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
        """Attempts that count: unknown, without a receipt, or failed to connect; not throttled ones or those released.
        A person's retry, or question, gives a fresh budget.
        """
        since = self.resolved_at(FRESH)
        return sum(1 for a in self.attempts if self._counts(a) and (since is None or a.at > since))

    def last(self) -> Attempt:
        return self.attempts[-1]

    def last_receipt(self) -> Receipt | None:
        return self.receipts.get(self.last().n)

    def answers(self, kind: str) -> list[Sighting]:
        """Probes, or tombstones, since the last attempt and since a person last asked."""
        asked = self.resolved_at(FRESH)
        since = max(self.last().at, asked) if asked is not None else self.last().at
        return [s for s in self.sightings if s.kind == kind and s.at >= since]

    def deciding_sighting(self) -> Sighting | None:
        """Evidence that settles the operation."""
        if self.final is not None:
            return None
        return next((s for s in self.sightings if s.outcome in FINAL_OUTCOMES), None)

    def contradiction(self) -> Sighting | None:
        """Evidence against the final outcome that no person has ruled on since: another outcome, or another effect."""
        if self.final is None:
            return None
        since = self.resolved_at(frozenset(RULED))
        return next(
            (s for s in self.sightings if (since is None or s.at > since) and self._against(s)),
            None,
        )

    def witness(self, ref: str = "") -> dict[str, Any]:
        """`ref` and `data` of the effect, as the last who saw it happen says, or the last who saw that one; or nothing."""
        rows: list[Receipt | Sighting] = [*self.receipts.values(), *self.sightings]
        said = [
            row
            for row in rows
            if row.outcome == ReceiptOutcome.CONFIRMED and ref in ("", row.evidence.get("ref"))
        ]
        found = max(said, key=lambda row: row.at).evidence if said else {}
        return {name: found[name] for name in ("ref", "data") if name in found}

    def resolved_at(self, acts: frozenset[str]) -> datetime | None:
        """When a person last did one of these."""
        return max((r.at for r in self.resolutions if r.act in acts), default=None)

    def done(self) -> Done:
        assert self.final is not None, "only a settled operation has results"
        evidence = self.final.evidence
        return Done(ref=evidence.get("ref", ""), data=evidence.get("data", {}))

    def last_possible_send(self, call_seconds: float) -> tuple[datetime | None, bool]:
        """(when the last doubtful attempt can have been sent, whether every sender has returned or is dead).

        Never the time of an attempt's commit: its sender may have slept since. None: nothing tells.
        """
        senders = [self._sender(a, timedelta(seconds=call_seconds)) for a in self.doubtful()]
        times = [at for at, _ in senders]
        latest = None if None in times else max((at for at in times if at), default=None)
        return latest, all(is_done for _, is_done in senders)

    def _sender(self, attempt: Attempt, call: timedelta) -> tuple[datetime | None, bool]:
        receipt = self.receipts.get(attempt.n)
        is_abandoned = receipt is not None and bool(receipt.evidence.get("abandoned"))
        if receipt is not None and not is_abandoned and receipt.fence in (None, attempt.fence):
            return receipt.at, True
        words = [s for s in self.sightings if s.n == attempt.n and s.fence in (None, attempt.fence)]
        for s in words:
            is_back = s.kind == "late" and not s.evidence.get("abandoned")
            if is_back or (s.kind == "sender_lost" and s.evidence.get("how") == "owner_dead"):
                return s.at, True
        ends = [_lease_end(s) for s in words if s.kind == "sender_lost"]
        if receipt is not None:
            ends.append(receipt.at)
        known = [end for end in ends if end is not None]
        return (max(known) + call if known else None), False

    def _against(self, seen: Sighting) -> bool:
        assert self.final is not None, "only a final outcome can be contradicted"
        if seen.outcome not in FINAL_OUTCOMES:
            return False
        if seen.outcome != self.final.outcome:
            return True
        refs = (seen.evidence.get("ref", ""), self.final.evidence.get("ref", ""))
        return seen.outcome == ReceiptOutcome.CONFIRMED and all(refs) and refs[0] != refs[1]

    def _outcome(self, attempt: Attempt) -> ReceiptOutcome | None:
        """As its receipt says; or its sender, where that came too late for a receipt."""
        receipt = self.receipts.get(attempt.n)
        if receipt is not None and not receipt.evidence.get("abandoned"):
            return receipt.outcome
        unsent = (ReceiptOutcome.NOT_SENT, ReceiptOutcome.THROTTLED)
        for s in self.sightings:
            if (
                s.kind == "late"
                and s.n == attempt.n
                and s.fence == attempt.fence
                and s.outcome in unsent
            ):
                return ReceiptOutcome(s.outcome)
        return receipt.outcome if receipt else None

    def _counts(self, attempt: Attempt) -> bool:
        receipt = self.receipts.get(attempt.n)
        if receipt is None or receipt.outcome is ReceiptOutcome.UNKNOWN:
            return True
        return receipt.outcome is ReceiptOutcome.NOT_SENT and not receipt.evidence.get("released")


def _lease_end(lost: Sighting) -> datetime | None:
    try:
        return datetime.fromisoformat(str(lost.evidence.get("lease_until")))
    except ValueError:
        return None


def fold(entries: Iterable[Entry]) -> dict[Key, Operation]:
    """The operations of a journal, in order of first appearance. Acts on the job as a whole belong to none."""
    operations: dict[Key, Operation] = {}
    for entry in entries:
        if entry.step:
            operations.setdefault((entry.step, entry.direction), Operation()).take(entry)
    return operations


def heard(operations: Mapping[Key, Operation]) -> int:
    """How much evidence from outside a journal has: sightings are never taken away."""
    return sum(len(operation.sightings) for operation in operations.values())


def _ruling(entry: Resolution, operation: Operation) -> Receipt:
    """A person's word as a receipt."""
    n = operation.attempts[-1].n if operation.attempts else 0
    evidence = {**entry.evidence, "resolved_by": entry.by}
    return Receipt(entry.step, entry.direction, n, RULED[entry.act], evidence, entry.at)


def confirmed_forward(operations: Mapping[Key, Operation]) -> dict[str, Done]:
    """What later arguments are derived from: the confirmed forward operations, by step name."""
    return {
        step: operation.done()
        for (step, direction), operation in operations.items()
        if direction is Direction.FORWARD and operation.is_confirmed()
    }


def asked_patience(answer: Receipt | Sighting) -> timedelta:
    """What the provider asked of everybody with this answer, throttled or in doubt; nothing, where it did not."""
    is_throttled = answer.outcome == ReceiptOutcome.THROTTLED
    asked = is_throttled or "after_seconds" in answer.evidence
    return throttled_after(answer) if asked else timedelta()


def throttled_after(answer: Receipt | Sighting) -> timedelta:
    """How long the provider asked us to wait, at most THROTTLE_MAX: nonsense must not strand a job."""
    return min(THROTTLE_MAX, timedelta(seconds=float(answer.evidence.get("after_seconds", "1"))))

"""How long to wait before something is tried again, and how long an operation id may still be sent as a key. Pure.

Backoff doubles to a cap and is jittered by the operation id, so that many jobs spread and the same job gets the same answer
on every look. What a provider asked for goes before it. A person's retry starts anew.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ledger import operations, saga
from ledger.operations import Operation, Receipt, Sighting
from ledger.outcomes import ReceiptOutcome

DUE_SLACK = timedelta(
    milliseconds=50
)  # a due time this near is now: the promise of a wait is not broken by it
KEY_LIFETIME_MARGIN = 0.9  # of the provider's stated lifetime we use this much
NOT_LANDED = "not_landed"
SPREAD_MAX = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Policy:
    """Backoff from `base`, doubling, to `cap`. `send_within`: how long after the decision a call may still begin (the
    lease), by which the provider's key must not have lapsed.
    """

    base: timedelta = timedelta(seconds=0.5)
    cap: timedelta = timedelta(seconds=60)
    send_within: timedelta = timedelta()


def send_again_at(
    policy: Policy, operation_id: str, operation: Operation, now: datetime
) -> datetime:
    """When the wait after the last attempt is over; now, where there is none."""
    receipt = operation.last_receipt()
    if receipt is None:  # its sender died: the reclaim has waited already
        return now
    asked = operation.resolved_at(operations.FRESH)
    if receipt.evidence.get("released") or (asked is not None and asked >= receipt.at):
        return now
    return receipt.at + _patience(policy, operation_id, receipt, operation.budget_used())


def ask_again_at(
    policy: Policy, operation_id: str, answers: Sequence[Sighting], now: datetime
) -> datetime:
    """When the wait after the last question is over; now, where it was answered. What the provider asked for holds, whatever
    came in since: a worker that had lost the job may bring an answer to a question from long before.
    """
    heeded = [s for s in answers if s.outcome == ReceiptOutcome.THROTTLED]
    if answers and answers[-1].outcome != NOT_LANDED:
        heeded.append(answers[-1])
    failed = failures(answers)
    return max((s.at + _patience(policy, operation_id, s, failed) for s in heeded), default=now)


def failures(answers: Sequence[Sighting]) -> int:
    """Questions without an answer: as with attempts, one that was throttled, or never asked, does not count."""
    spared = (NOT_LANDED, ReceiptOutcome.THROTTLED)
    return sum(s.outcome not in spared and not s.evidence.get("released") for s in answers)


def key_until(policy: Policy, effect: saga.Effect, operation: Operation) -> datetime | None:
    """Until when a call with this id may be decided on. Counts from the first attempt that was not proved unsent."""
    if effect.key_lifetime is None:
        return None
    first = operation.doubtful()[0].at
    return first + effect.key_lifetime * KEY_LIFETIME_MARGIN - policy.send_within


def _patience(
    policy: Policy, operation_id: str, answer: Receipt | Sighting, failed: int
) -> timedelta:
    """What the provider asked for, where it did (never nothing: no budget ends it), and a little more, so that not all
    come back at that moment; our own backoff otherwise.
    """
    if answer.outcome == ReceiptOutcome.THROTTLED:
        asked = max(operations.throttled_after(answer), policy.base)
        return asked + min(asked / 4, SPREAD_MAX) * draw(f"{operation_id}:{answer.n}")
    return _backoff(policy, operation_id, failed)


def _backoff(policy: Policy, operation_id: str, failed: int) -> timedelta:
    """Base x 2^(failed-1), at most cap, times 0.5..1."""
    doublings: int = min(max(failed, 1) - 1, 20)
    full = min(policy.cap, policy.base * (1 << doublings))
    return full * (0.5 + draw(f"{operation_id}:{failed}") / 2)


def draw(seed: str) -> float:
    """A number in [0, 1) that follows from the seed."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") / 2**32

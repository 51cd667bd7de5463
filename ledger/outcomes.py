"""What can come of an operation, and the errors of the engine: one closed set of types.

A handler returns or raises exactly one of `Confirmed`, `Refused`, `NotSent`, `Throttled`; whatever else leaves it is
`Unknown`. Nothing here may be widened by guesswork: a timeout, a reset, a 5xx, an answer that cannot be read or that
speaks of another amount is unknown, never refused, because a refusal starts the undo of everything done before it.

    Exception
    ├── Refused            it definitely did not happen and will not
    ├── NotSent            no byte left us; safe to send again
    ├── Throttled          the provider asked for patience; it did not happen
    ├── Unknown            it may have happened
    └── LedgerError
        ├── StaleFence         the writer no longer owns the job
        ├── IllegalTransition  the job is not in a state that allows this write
        ├── OperationConflict  a known operation id with other arguments
        ├── SubmissionConflict a known submission key with another request
        └── SubmissionGone     a submission key whose job was retained away
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

Json = Mapping[str, Any]


class ReceiptOutcome(StrEnum):
    """The outcome column of a receipt; `confirmed` and `refused` are final for the operation."""

    CONFIRMED = "confirmed"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    NOT_SENT = "not_sent"
    THROTTLED = "throttled"


FINAL_OUTCOMES = frozenset({ReceiptOutcome.CONFIRMED, ReceiptOutcome.REFUSED})


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in minor units (cents of EUR, whole JPY) with its ISO 4217 code; no float on any path."""

    amount_minor: int
    currency: str

    def as_json(self) -> dict[str, Any]:
        return {"amount_minor": self.amount_minor, "currency": self.currency}


@dataclass(frozen=True, slots=True)
class Confirmed:
    """It happened. `ref` is the provider's own name for the effect, `data` what later steps need, `cost` its fee."""

    ref: str = ""
    data: Json = field(default_factory=dict)
    cost: Money | None = None
    stale: bool = False  # an undo that found its resource already given up: shown as such


@dataclass(frozen=True, slots=True)
class NotLanded:
    """A probe's answer: the provider knows no such operation (as yet). Proves nothing about a send that is under way."""

    data: Json = field(default_factory=dict)


class Refused(Exception):
    """It definitely did not happen and will not. `reason` is a short code such as `card_declined`."""

    def __init__(self, reason: str, data: Json | None = None) -> None:
        self.reason = reason
        self.data: Json = data or {}
        super().__init__(reason)


class NotSent(Exception):
    """No byte left us: DNS, connection refused, pool timeout.

    `released` marks one that never was tried (the engine gave it back unsent): it uses no attempt budget.
    """

    def __init__(self, reason: str, *, released: bool = False) -> None:
        self.reason = reason
        self.released = released
        super().__init__(reason)


class Throttled(Exception):
    """Patience is asked for (a provider's 429 and its like): it did not happen. `after` counts from now; `data` says why."""

    def __init__(
        self, after: timedelta, reason: str = "throttled", data: Json | None = None
    ) -> None:
        self.after = after
        self.reason = reason
        self.data: Json = data or {}
        super().__init__(f"{reason}, again after {after.total_seconds():g} s")


class Unknown(Exception):
    """It may have happened. `data` keeps what came back (bounded), because it may be the proof of a payment. `after`: the
    provider asked everybody for so much patience (a 503 with Retry-After).
    """

    def __init__(
        self, reason: str, data: Json | None = None, after: timedelta | None = None
    ) -> None:
        self.reason = reason
        self.data: Json = data or {}
        self.after = after
        super().__init__(reason)


Outcome = Confirmed | Refused | NotSent | Throttled | Unknown
Sighted = Confirmed | Refused | NotLanded | NotSent | Throttled | Unknown


class LedgerError(Exception):
    """Base of the engine's own errors."""


class StaleFence(LedgerError):
    """A write under a fence that is no longer the job's: someone else owns it now. Nothing was written."""

    def __init__(self, job_id: object, fence: int, current: int | None) -> None:
        self.job_id, self.fence, self.current = job_id, fence, current
        super().__init__(f"job {job_id}: fence {fence} is not the current one ({current})")


class IllegalTransition(LedgerError):
    """The job is in a state from which the write may not move it. Nothing was written."""

    def __init__(self, job_id: object, state: str, to: str) -> None:
        self.job_id, self.state, self.to = job_id, state, to
        super().__init__(f"job {job_id}: no way from {state} to {to}")


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs: JSON pointer, stored value, new value."""

    pointer: str
    stored: Any
    new: Any


class OperationConflict(LedgerError):
    """Code derived other arguments for an operation id that is already known. Raised before any I/O."""

    def __init__(self, operation_id: str, differences: Sequence[Difference]) -> None:
        self.operation_id, self.differences = operation_id, tuple(differences)
        named = "; ".join(f"{d.pointer}: stored {d.stored!r}, new {d.new!r}" for d in differences)
        super().__init__(f"operation {operation_id} is known with other arguments: {named}")


class SubmissionConflict(LedgerError):
    """A submission key was used again for another request. Names the fields that differ, never their values."""

    def __init__(self, key: str, pointers: Sequence[str]) -> None:
        self.key, self.pointers = key, tuple(pointers)
        super().__init__(
            f"submission key is known with another request, differing in {', '.join(pointers)}"
        )


class SubmissionGone(LedgerError):
    """A submission key whose job has been removed by retention; the key stays used."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__("the job of this submission key is past its retention")

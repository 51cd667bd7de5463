"""What the planner can decide on: one closed set of actions, from a call to the end of a job. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ledger import saga
from ledger.outcomes import ReceiptOutcome
from ledger.saga import Direction
from ledger.states import JobState, ParkedReason


@dataclass(frozen=True, slots=True)
class Send:
    """Write attempt n, then call. `arguments` are those frozen with attempt 1."""

    step: saga.Step
    direction: Direction
    n: int
    arguments: Mapping[str, Any]
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class RunLocal(Send):
    """Run a LOCAL handler in a local batch: attempt and receipt commit with its rows."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Probe the provider about an operation in doubt. No attempt is written."""

    step: saga.Step
    direction: Direction
    n: int
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bury:
    """Tell the provider to refuse this operation id from now on: the job no longer wants it. No attempt is written."""

    step: saga.Step
    direction: Direction
    n: int
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """Evidence decides: write this receipt, then plan again."""

    step: str
    direction: Direction
    n: int
    outcome: ReceiptOutcome
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TurnBack:
    """A forward operation is refused, or given up unsent: from now on the job goes backward."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Give the job back with a due time, in this lane."""

    delay: timedelta
    lane: str


@dataclass(frozen=True, slots=True)
class Finish:
    state: JobState


@dataclass(frozen=True, slots=True)
class Park:
    """Only blocked operations are left. `detail` is for the person who looks."""

    reason: ParkedReason
    operation: str
    detail: str = ""


Action = Send | RunLocal | Ask | Bury | Record | TurnBack | Wait | Finish | Park

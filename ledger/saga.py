"""A saga as data: a named, versioned list of steps, each undo beside its do; and the registry of those a build knows.

Pure: no Django, no Celery, no database. A released step is never renamed or moved in place (the journal of running jobs
speaks of steps by name); a change is a new version, and a build registers every version that it can still drive.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from ledger import outcomes


class Direction(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt of one operation, as a handler sees it. `timeout_seconds` bounds all that the handler may take."""

    operation_id: str
    job_id: UUID
    tenant: str
    n: int
    arguments: Mapping[str, Any]
    timeout_seconds: float


Handler = Callable[[Call], outcomes.Outcome]
Probe = Callable[[Call], outcomes.Sighted]


@dataclass(frozen=True, slots=True)
class NotUndoable:
    """In place of an undo: says why there is none."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a provider promises about one kind of operation; the planner decides about doubt from these alone.

    provider            whose limits a call falls under (`ledger.permits`); empty: nobody's
    key_lifetime        how long the operation id works as the provider's idempotency key, from the first attempt
                        that was not proved unsent; None: it does not
    probe               asks the provider about an operation id, without effect
    tombstone           tells the provider to refuse that id from now on
    request_lifetime    how long a request that was sent may still land
    probe_lag           how far the provider's answers to probes may be behind
    resend_to_learn     going backward, the operation may be sent again to learn its outcome (key honoured, no probe)
    late_probe_suffices a negative probe that came late enough is believed even where a sender may be alive
    call_seconds        deadline of one call, shorter than the lease
    """

    provider: str = ""
    key_lifetime: timedelta | None = None
    probe: Probe | None = None
    tombstone: Handler | None = None
    request_lifetime: timedelta = timedelta(minutes=2)
    probe_lag: timedelta = timedelta()
    resend_to_learn: bool = False
    late_probe_suffices: bool = False
    call_seconds: float = 8.0


@dataclass(frozen=True, slots=True)
class Local:
    """The effect of a step that changes only our own database: it commits together with its receipt."""


LOCAL = Local()


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that a LOCAL handler touches, so that a batch can lock them all once and in one order.

    name  sorts before or after other kinds of rows: the canonical order between tables
    keys  arguments -> the rows' keys, sortable
    lock  locks exactly these rows, in the order given, inside the caller's transaction
    """

    name: str
    keys: Callable[[Mapping[str, Any]], Iterable[tuple[Any, ...]]]
    lock: Callable[[Sequence[tuple[Any, ...]]], None]


@dataclass(frozen=True, slots=True)
class Done:
    """The confirmed receipt of an earlier operation, as later arguments are derived from it."""

    ref: str
    data: Mapping[str, Any]


Arguments = Callable[[Any, Mapping[str, Done]], Mapping[str, Any]]


def input_only(request: Any, _done: Mapping[str, Done]) -> Mapping[str, Any]:
    """The default arguments: the job's input as it was stored."""
    return request if isinstance(request, Mapping) else vars_of(request)


def vars_of(request: Any) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Step:
    """At most one outside effect, with its undo. Steps before the pivot are compensable, those after it retryable.

    arguments, undo_arguments  (input, {step name: Done of its forward operation}) -> the operation's arguments
    attempts, undo_attempts    the attempt budget per direction
    rows                       LOCAL only: what its handlers lock
    """

    name: str
    do: Handler
    undo: Handler | NotUndoable | None = None
    effect: Effect | Local = field(kw_only=True)
    undo_effect: Effect | Local | None = field(default=None, kw_only=True)
    arguments: Arguments = field(default=input_only, kw_only=True)
    undo_arguments: Arguments = field(default=input_only, kw_only=True)
    rows: Rows | None = field(default=None, kw_only=True)
    pivot: bool = field(default=False, kw_only=True)
    attempts: int = field(default=5, kw_only=True)
    undo_attempts: int = field(default=12, kw_only=True)
    parks_when_unknown: bool = field(default=False, kw_only=True)

    def effect_of(self, direction: Direction) -> Effect | Local:
        if direction is Direction.BACKWARD and self.undo_effect is not None:
            return self.undo_effect
        return self.effect

    def handler_of(self, direction: Direction) -> Handler | NotUndoable | None:
        return self.do if direction is Direction.FORWARD else self.undo

    def attempts_of(self, direction: Direction) -> int:
        return self.attempts if direction is Direction.FORWARD else self.undo_attempts

    def arguments_of(self, direction: Direction) -> Arguments:
        return self.arguments if direction is Direction.FORWARD else self.undo_arguments


@dataclass(frozen=True, slots=True)
class Saga:
    """The definition. `input` builds the typed input from the stored JSON object (a dataclass does)."""

    name: str
    version: int = field(kw_only=True)
    steps: Sequence[Step] = field(kw_only=True)
    input: Callable[..., Any] = field(default=dict, kw_only=True)

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.version

    def step(self, name: str) -> Step | None:
        return next((step for step in self.steps if step.name == name), None)

    def pivot_index(self) -> int | None:
        return next((i for i, step in enumerate(self.steps) if step.pivot), None)


_registered: list[Saga] = []


def register(saga: Saga) -> Saga:
    """Make a saga known to this build. Two of one name and version are a definition mistake: `manage.py check` says so."""
    _registered.append(saga)
    return saga


def forget(saga: Saga) -> None:
    """For a matrix or a test; a build forgets none."""
    _registered.remove(saga)


def registered() -> list[Saga]:
    return list(_registered)


def find(name: str, version: int) -> Saga | None:
    return next((saga for saga in _registered if saga.key == (name, version)), None)


def operation_id(job_id: UUID, step: str, direction: Direction) -> str:
    """The stable name of an operation; there is never a second one for the same operation."""
    return f"{job_id}:{step}:{direction}"

"""Decides what a job does next: (saga, job, journal, database time) -> one action. Pure and total.

All the `if`s of the engine live here; acting on the decision is plain. Nothing is guessed: an operation whose outcome
nobody saw is settled by evidence, sent again under its own id while the provider still honours it, or blocked; and a
job parks when only blocked operations are left.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ledger import canonical, operations, saga
from ledger.operations import Entry, Key, Operation
from ledger.outcomes import OperationConflict, ReceiptOutcome
from ledger.saga import Direction
from ledger.states import JobState, Lane, ParkedReason

DUE_SLACK = timedelta(
    milliseconds=50
)  # a due time this near is now: the promise of a wait is not broken by it
KEY_LIFETIME_MARGIN = 0.9  # of the provider's stated lifetime we use this much


@dataclass(frozen=True, slots=True)
class Job:
    """What the planner needs of a job's row."""

    id: UUID
    input: Any
    direction: Direction
    lane: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Backoff of repeated attempts: doubling from `base` to `cap`, jittered by half."""

    base: timedelta = timedelta(seconds=0.5)
    cap: timedelta = timedelta(seconds=60)


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


Action = Send | RunLocal | Ask | Record | TurnBack | Wait | Finish | Park


def next_action(
    definition: saga.Saga,
    job: Job,
    entries: Sequence[Entry],
    now: datetime,
    policy: Policy = Policy(),
) -> Action:
    """The one next action of a job that nobody is calling for at the moment."""
    return decide(definition, job, operations.fold(entries), now, policy)


def decide(
    definition: saga.Saga, job: Job, ops: Mapping[Key, Operation], now: datetime, policy: Policy
) -> Action:
    """The same, of a journal that is folded already."""
    unknown = [step for step, _ in ops if definition.step(step) is None]
    if unknown:
        return Park(
            ParkedReason.UNSUPPORTED_VERSION, unknown[0], "the journal has a step this saga lacks"
        )
    context = _Context(definition, job, ops, now, policy)
    if job.direction is Direction.FORWARD:
        return _forward(context)
    if job.lane == Lane.FORWARD and _has_undo_work(ops):
        return Wait(timedelta(), Lane.COMPENSATION)
    return _backward(context)


def pivot_may_be_sent(
    definition: saga.Saga, ops: Mapping[Key, Operation], next_send: str | None
) -> bool:
    """Whether an attempt of the pivot may have had, or is about to have, an effect: the point of no return."""
    index = definition.pivot_index()
    if index is None:
        return False
    pivot = definition.steps[index].name
    if next_send == pivot:
        return True
    operation = ops.get((pivot, Direction.FORWARD))
    return operation is not None and (operation.is_confirmed() or bool(operation.doubtful()))


@dataclass(slots=True)
class _Context:
    definition: saga.Saga
    job: Job
    ops: Mapping[Key, Operation]
    now: datetime
    policy: Policy

    def operation_id(self, step: saga.Step, direction: Direction) -> str:
        return saga.operation_id(self.job.id, step.name, direction)


def _forward(ctx: _Context) -> Action:
    for index, step in enumerate(ctx.definition.steps):
        operation = ctx.ops.get((step.name, Direction.FORWARD))
        if operation is not None and operation.is_confirmed():
            continue
        if operation is not None and operation.is_refused():
            return _after_pivot(ctx, index, step, ParkedReason.REFUSED_AFTER_PIVOT) or TurnBack()
        action = _drive(ctx, step, Direction.FORWARD, operation)
        if isinstance(action, Park) and action.reason is ParkedReason.EXHAUSTED:
            return _after_pivot(ctx, index, step, ParkedReason.EXHAUSTED) or TurnBack()
        return action
    return Finish(JobState.CONFIRMED)


def _after_pivot(ctx: _Context, index: int, step: saga.Step, reason: ParkedReason) -> Park | None:
    pivot = ctx.definition.pivot_index()
    if pivot is None or index <= pivot:
        return None
    return Park(reason, ctx.operation_id(step, Direction.FORWARD))


def _backward(ctx: _Context) -> Action:
    """Undo in reverse. A forward operation in doubt holds up earlier undos; a blocked undo does not."""
    blocked: Park | None = None
    for step in reversed(ctx.definition.steps):
        forward = ctx.ops.get((step.name, Direction.FORWARD))
        if forward is None or forward.is_refused() or forward.is_proved_unsent():
            continue
        if not forward.is_confirmed():
            action = _drive(ctx, step, Direction.FORWARD, forward)
            if not isinstance(action, Park):
                return action
            blocked = blocked or action
            break
        undo = _undo(ctx, step)
        if isinstance(undo, Park):
            blocked = blocked or undo
        elif undo is not None:
            return undo
    if blocked is not None:
        return blocked
    undone = any(d is Direction.FORWARD and op.is_confirmed() for (_, d), op in ctx.ops.items())
    return Finish(JobState.COMPENSATED if undone else JobState.REFUSED)


def _undo(ctx: _Context, step: saga.Step) -> Action | None:
    """The next action of a confirmed step's undo; None when it is undone."""
    operation = ctx.ops.get((step.name, Direction.BACKWARD))
    if operation is not None and operation.is_confirmed():
        return None
    failed = Park(
        ParkedReason.COMPENSATION_FAILED,
        ctx.operation_id(step, Direction.BACKWARD),
        "no undo is known",
    )
    if step.undo is None or isinstance(step.undo, saga.NotUndoable):
        return failed
    if operation is not None and operation.is_refused():
        return Park(failed.reason, failed.operation, "the undo was refused")
    action = _drive(ctx, step, Direction.BACKWARD, operation)
    if isinstance(action, Park) and action.reason is ParkedReason.EXHAUSTED:
        return Park(failed.reason, failed.operation, "the attempt budget is spent")
    return action


def _drive(
    ctx: _Context, step: saga.Step, direction: Direction, operation: Operation | None
) -> Action:
    try:
        arguments, digest = _arguments(ctx, step, direction, operation)
    except OperationConflict as conflict:
        return Park(ParkedReason.CONFLICT, conflict.operation_id, str(conflict))
    if operation is None or not operation.attempts:
        kind = RunLocal if isinstance(step.effect_of(direction), saga.Local) else Send
        return kind(step, direction, 1, arguments, digest)
    if operation.doubtful():
        return _in_doubt(ctx, step, direction, operation)
    if operation.budget_used() >= step.attempts_of(direction):
        return Park(ParkedReason.EXHAUSTED, ctx.operation_id(step, direction))
    return _again(ctx, step, direction, operation)


def _again(ctx: _Context, step: saga.Step, direction: Direction, operation: Operation) -> Action:
    """Send once more, same id, same arguments, when its wait is over."""
    wait = _due_at(ctx, step, direction, operation) - ctx.now
    if wait > DUE_SLACK:
        return Wait(wait, ctx.job.lane)
    first = operation.attempts[0]
    assert first.arguments is not None, "attempt 1 carries the arguments"
    kind = RunLocal if isinstance(step.effect_of(direction), saga.Local) else Send
    return kind(step, direction, operation.last().n + 1, first.arguments, first.fingerprint)


def _in_doubt(ctx: _Context, step: saga.Step, direction: Direction, operation: Operation) -> Action:
    """Evidence first, then a question, then the same id again while its key lives; otherwise blocked."""
    effect = step.effect_of(direction)
    if (seen := operation.deciding_sighting()) is not None:
        outcome = ReceiptOutcome(seen.outcome)
        return Record(
            step.name, direction, seen.n, outcome, {**seen.evidence, "seen_by": seen.kind}
        )
    blocked = Park(ParkedReason.UNKNOWN_OUTCOME, ctx.operation_id(step, direction))
    if isinstance(effect, saga.Local):
        return blocked
    if effect.probe is not None and (asking := _ask(ctx, step, direction, operation)) is not None:
        return asking
    is_wanted = direction is ctx.job.direction
    has_budget = operation.budget_used() < step.attempts_of(direction)
    if is_wanted and has_budget and _key_lives(ctx, effect, operation):
        return _again(ctx, step, direction, operation)
    return blocked


def _ask(
    ctx: _Context, step: saga.Step, direction: Direction, operation: Operation
) -> Action | None:
    """A probe that is still owed since the last attempt; None once one was answered or the budget of asking is spent."""
    asked = operation.probes_since_last_attempt()
    if any(s.outcome == "not_landed" for s in asked):
        return None
    counted = sum(s.outcome != ReceiptOutcome.THROTTLED for s in asked)  # as with attempts
    if counted >= step.attempts_of(direction):
        return None
    if asked:
        wait = asked[-1].at + _patience(ctx, step, direction, asked[-1], counted) - ctx.now
        if wait > DUE_SLACK:
            return Wait(wait, ctx.job.lane)
    first = operation.attempts[0]
    return Ask(step, direction, operation.last().n, first.arguments or {})


def _key_lives(ctx: _Context, effect: saga.Effect, operation: Operation) -> bool:
    """The lifetime counts from the first attempt that was not proved unsent."""
    if effect.key_lifetime is None:
        return False
    return ctx.now < operation.doubtful()[0].at + effect.key_lifetime * KEY_LIFETIME_MARGIN


def _due_at(ctx: _Context, step: saga.Step, direction: Direction, operation: Operation) -> datetime:
    receipt = operation.last_receipt()
    if receipt is None:  # its sender died: the reclaim has waited already
        return ctx.now
    if receipt.evidence.get("released"):
        return ctx.now
    return receipt.at + _patience(ctx, step, direction, receipt, operation.budget_used())


def _patience(
    ctx: _Context,
    step: saga.Step,
    direction: Direction,
    answer: operations.Receipt | operations.Sighting,
    failures: int,
) -> timedelta:
    """What the provider asked for, where it did (never nothing: no budget ends it); our own backoff otherwise."""
    if answer.outcome == ReceiptOutcome.THROTTLED:
        return max(operations.throttled_after(answer), ctx.policy.base)
    return _backoff(ctx, step, direction, failures)


def _backoff(ctx: _Context, step: saga.Step, direction: Direction, failures: int) -> timedelta:
    """Base x 2^(failures-1), at most cap, times 0.5..1 drawn from the operation id: spread, and the same on every look."""
    doublings: int = min(max(failures, 1) - 1, 20)
    full = min(ctx.policy.cap, ctx.policy.base * (1 << doublings))
    seed = f"{ctx.operation_id(step, direction)}:{failures}".encode()
    draw = int.from_bytes(hashlib.sha256(seed).digest()[:4], "big") / 2**32
    return full * (0.5 + draw / 2)


def _arguments(
    ctx: _Context, step: saga.Step, direction: Direction, operation: Operation | None
) -> tuple[Mapping[str, Any], bytes]:
    """The arguments as this build derives them, checked against those frozen with attempt 1.

    Raises OperationConflict, naming each field that differs, before any I/O.
    """
    derived = step.arguments_of(direction)(ctx.job.input, operations.confirmed_forward(ctx.ops))
    digest = canonical.fingerprint(derived)
    if operation is not None and operation.attempts and operation.attempts[0].fingerprint != digest:
        stored = operation.attempts[0].arguments or {}
        raise OperationConflict(
            ctx.operation_id(step, direction), list(canonical.differences(stored, derived))
        )
    return derived, digest


def _has_undo_work(ops: Mapping[Key, Operation]) -> bool:
    return any(
        d is Direction.FORWARD and (op.is_confirmed() or op.doubtful())
        for (_, d), op in ops.items()
    )

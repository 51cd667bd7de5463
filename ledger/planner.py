"""Decides what a job does next: (saga, job, journal, database time) -> one action. Pure and total.

All the `if`s of the engine live here; acting on the decision is plain. Nothing is guessed: an operation whose outcome
nobody saw is settled by evidence, sent again under its own id while the provider still honours it, or blocked; and a
job parks when only blocked operations are left.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ledger import canonical, doubt, operations, patience, saga
from ledger.actions import (
    Action,
    Ask,
    Bury,
    Finish,
    Park,
    Record,
    RunLocal,
    Send,
    TurnBack,
    Wait,
)
from ledger.doubt import Verdict
from ledger.operations import Entry, Key, Operation, Receipt
from ledger.outcomes import OperationConflict, ReceiptOutcome
from ledger.saga import Direction
from ledger.states import JobState, Lane, ParkedReason

# Of one job at a time: each but the last records evidence of an operation or turns back.
PLANS_MAX = 100
WITNESSES = {
    "probe": "the provider, asked,",
    "tombstone": "the provider, told to refuse it,",
    "late": "its late answer",
}


@dataclass(frozen=True, slots=True)
class Job:
    """What the planner needs of a job's row."""

    id: UUID
    input: Any
    direction: Direction
    lane: str


@dataclass(frozen=True, slots=True)
class Planned:
    """One action on the way, and the direction and operations after which it comes; `receipt` is what it records."""

    action: Action
    direction: Direction
    ops: Mapping[Key, Operation]
    receipt: Receipt | None = None


def ahead(
    definition: saga.Saga,
    job: Job,
    entries: Sequence[Entry],
    now: datetime,
    policy: patience.Policy,
) -> Iterator[Planned]:
    """Up to the first action that needs the outside, a wait or the end: evidence is recorded, a refusal turns the job."""
    known = list(entries)
    for _ in range(PLANS_MAX):
        ops = operations.fold(known)
        match action := decide(definition, job, ops, now, policy):
            case Record(step, of, n, outcome, found):
                receipt = Receipt(step, of, n, outcome, found, now)
                known.append(receipt)
                yield Planned(action, job.direction, ops, receipt)
            case TurnBack():
                job = replace(job, direction=Direction.BACKWARD)
                yield Planned(action, job.direction, ops)
            case _:
                yield Planned(action, job.direction, ops)
                return
    endless = Park(ParkedReason.CONFLICT, "", "the plan does not come to an end")
    yield Planned(endless, job.direction, operations.fold(known))


def decide(
    definition: saga.Saga,
    job: Job,
    ops: Mapping[Key, Operation],
    now: datetime,
    policy: patience.Policy,
) -> Action:
    """The one next action of a job that nobody is calling for at the moment."""
    unknown = [step for step, _ in ops if definition.step(step) is None]
    if unknown:
        return Park(
            ParkedReason.UNSUPPORTED_VERSION, unknown[0], "the journal has a step this saga lacks"
        )
    if (seen := _seen(ops)) is not None:
        return seen
    context = _Context(definition, job, ops, now, policy)
    if job.direction is Direction.FORWARD:
        return _contradicted(context) or _forward(context)
    if job.lane == Lane.FORWARD and _has_undo_work(ops):
        return Wait(timedelta(), Lane.COMPENSATION)
    return _backward(context)


def _seen(ops: Mapping[Key, Operation]) -> Record | None:
    """Evidence that decides is taken before anything else, of whichever operation: who sent the job on for it expects so."""
    for (name, direction), operation in ops.items():
        if (s := operation.deciding_sighting()) is not None:
            found = {**s.evidence, "seen_by": s.kind}
            return Record(name, direction, s.n, ReceiptOutcome(s.outcome), found)
    return None


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
    policy: patience.Policy

    def is_past_pivot(self, step: saga.Step) -> bool:
        pivot = self.definition.pivot_index()
        return pivot is not None and self.definition.steps.index(step) > pivot

    def operation_id(self, step: saga.Step, direction: Direction) -> str:
        return saga.operation_id(self.job.id, step.name, direction)


def _forward(ctx: _Context) -> Action:
    """Step by step. Nobody is turned back past the pivot: its refusal is proved before the job turns."""
    for step in ctx.definition.steps:
        operation = ctx.ops.get((step.name, Direction.FORWARD))
        if operation is not None and operation.is_confirmed():
            continue
        if operation is not None and operation.is_refused():
            return _after_pivot(ctx, step, ParkedReason.REFUSED_AFTER_PIVOT) or TurnBack()
        action = _drive(ctx, step, Direction.FORWARD, operation)
        if isinstance(action, Park) and action.reason is ParkedReason.EXHAUSTED:
            return _after_pivot(ctx, step, ParkedReason.EXHAUSTED) or TurnBack()
        return action
    return Finish(JobState.CONFIRMED)


def _after_pivot(ctx: _Context, step: saga.Step, reason: ParkedReason) -> Park | None:
    """A step before the pivot too may be ruled not done when the pivot has been sent: nothing goes back past it."""
    if not (ctx.is_past_pivot(step) or pivot_may_be_sent(ctx.definition, ctx.ops, None)):
        return None
    return Park(reason, ctx.operation_id(step, Direction.FORWARD))


def _contradicted(ctx: _Context) -> Action | None:
    """Evidence against what was settled: a person has to say what is true. What they asked for is asked first."""
    for (name, direction), operation in ctx.ops.items():
        if (action := _contradiction(ctx, name, direction, operation)) is not None:
            return action
    return None


def _contradiction(
    ctx: _Context, name: str, direction: Direction, operation: Operation
) -> Action | None:
    seen = operation.contradiction()
    if seen is None:
        return None
    assert operation.final is not None, "only what is settled can be contradicted"
    step = ctx.definition.step(name)
    assert step is not None, "steps that the saga lacks are refused before"
    effect, wants = step.effect_of(direction), operation.resolved_at(frozenset({"ask"}))
    is_asked = wants is not None and not operation.answers("probe") and operation.attempts
    if is_asked and isinstance(effect, saga.Effect) and effect.probe is not None:
        return _asking(Ask, step, direction, operation)
    detail = f"settled as {operation.final.outcome}, but {WITNESSES.get(seen.kind, seen.kind)} says {seen.outcome}"
    return Park(ParkedReason.CONTRADICTION, ctx.operation_id(step, direction), detail)


def _backward(ctx: _Context) -> Action:
    """Undo in reverse. A forward operation in doubt holds up earlier undos; a blocked undo does not."""
    blocked: Park | None = None
    for step in reversed(ctx.definition.steps):
        action, holds_up = _going_back(ctx, step)
        if isinstance(action, Park):
            blocked = blocked or action
            if holds_up:
                break
        elif action is not None:
            return action
    if blocked is not None:
        return blocked
    undone = any(d is Direction.FORWARD and op.is_confirmed() for (_, d), op in ctx.ops.items())
    return Finish(JobState.COMPENSATED if undone else JobState.REFUSED)


def _going_back(ctx: _Context, step: saga.Step) -> tuple[Action | None, bool]:
    """(what this step needs before the job can end, whether earlier steps have to wait for it)."""
    forward = ctx.ops.get((step.name, Direction.FORWARD))
    if forward is None:
        return None, False
    if (against := _contradiction(ctx, step.name, Direction.FORWARD, forward)) is not None:
        return against, True
    if forward.is_refused() or forward.is_proved_unsent():
        undo = ctx.ops.get((step.name, Direction.BACKWARD))
        is_open = undo is not None and bool(undo.doubtful())  # sent before a person ruled
        return (_drive(ctx, step, Direction.BACKWARD, undo) if is_open else None), False
    if not forward.is_confirmed():
        return _drive(ctx, step, Direction.FORWARD, forward), True
    return _undo(ctx, step), False


def _undo(ctx: _Context, step: saga.Step) -> Action | None:
    """The next action of a confirmed step's undo; None when it is undone."""
    operation = ctx.ops.get((step.name, Direction.BACKWARD))
    if operation is not None:
        against = _contradiction(ctx, step.name, Direction.BACKWARD, operation)
        if against is not None or operation.is_confirmed():
            return against
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
    operation_id = ctx.operation_id(step, direction)
    due = patience.send_again_at(ctx.policy, operation_id, operation, ctx.now)
    if (wait := _wait(ctx, due)) is not None:
        return wait
    first = operation.attempts[0]
    assert first.arguments is not None, "attempt 1 carries the arguments"
    kind = RunLocal if isinstance(step.effect_of(direction), saga.Local) else Send
    return kind(step, direction, operation.last().n + 1, first.arguments, first.fingerprint)


def _in_doubt(ctx: _Context, step: saga.Step, direction: Direction, operation: Operation) -> Action:
    """Whatever gets evidence (`ledger.doubt`); otherwise blocked."""
    operation_id, effect = ctx.operation_id(step, direction), step.effect_of(direction)
    if isinstance(effect, saga.Local):
        # Its handler said so, and its rows were rolled back: it is safe to run again, once a person has looked.
        is_retried = _is_retried(operation)
        blocked = Park(ParkedReason.UNKNOWN_OUTCOME, operation_id)
        return _again(ctx, step, direction, operation) if is_retried else blocked
    known = doubt.weigh(
        doubt.Asked(operation_id, direction is ctx.job.direction, step.attempts_of(direction)),
        effect,
        operation,
        now=ctx.now,
        policy=ctx.policy,
    )
    decision = doubt.decide(known)
    if decision.verdict is Verdict.BLOCKED:
        return Park(ParkedReason.UNKNOWN_OUTCOME, operation_id, decision.why)
    if decision.verdict not in (Verdict.SPENT, Verdict.NOT_DONE):
        return _go_on(ctx, decision, step, direction, operation)
    is_kept = direction is Direction.BACKWARD or ctx.is_past_pivot(step)
    if decision.verdict is Verdict.SPENT and is_kept:
        return Park(ParkedReason.EXHAUSTED, operation_id)
    found = {"reason": "not_landed", "seen_by": "late_probe", **known.proof()}
    return Record(step.name, direction, operation.last().n, ReceiptOutcome.REFUSED, found)


def _is_retried(operation: Operation) -> bool:
    """A person asked for another attempt since the last one."""
    asked = operation.resolved_at(frozenset({"retry"}))
    return asked is not None and asked > operation.last().at


def _go_on(
    ctx: _Context,
    decision: doubt.Decision,
    step: saga.Step,
    direction: Direction,
    operation: Operation,
) -> Action:
    if (wait := _wait(ctx, decision.at)) is not None:
        return wait
    match decision.verdict:
        case Verdict.ASK:
            return _asking(Ask, step, direction, operation)
        case Verdict.BURY:
            return _asking(Bury, step, direction, operation)
        case Verdict.RESEND:
            return _again(ctx, step, direction, operation)
        case _:  # the end of a wait, to the slack of due times
            return Wait(patience.DUE_SLACK, ctx.job.lane)


def _asking(
    kind: type[Ask] | type[Bury], step: saga.Step, direction: Direction, operation: Operation
) -> Ask | Bury:
    return kind(step, direction, operation.last().n, operation.attempts[0].arguments or {})


def _wait(ctx: _Context, until: datetime | None) -> Wait | None:
    """The rest of a wait; None when it is over."""
    if until is None or until - ctx.now <= patience.DUE_SLACK:
        return None
    return Wait(until - ctx.now, ctx.job.lane)


def _arguments(
    ctx: _Context, step: saga.Step, direction: Direction, operation: Operation | None
) -> tuple[Mapping[str, Any], bytes]:
    """The arguments as this build derives them, checked against those frozen with attempt 1.

    Raises OperationConflict, naming each field that differs, before any I/O.
    """
    forward = ctx.ops.get((step.name, Direction.FORWARD))
    is_overruled = direction is Direction.BACKWARD and not (forward and forward.is_confirmed())
    if operation is not None and operation.attempts and is_overruled:
        first = operation.attempts[0]  # what it was derived from is no longer held to have happened
        return first.arguments or {}, first.fingerprint
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

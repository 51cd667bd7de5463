"""What is to happen to the job of a case, faults apart: the good run, a refusal at each step, a cancel, a lost request.

Made from the saga's own shape, so that any definition has them. Operations are named `step:direction`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ledger import saga
from ledger.saga import Direction
from recovery.matrix.faults import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """`first` is a fault that belongs to the script: the cases of it are faults on the way out of that one.

    turns_at   the job is cancelled (or its deadline passes) while that operation's first request is under way
    loses      that first request does not arrive, and its caller never hears
    retains    the ended job is removed when its term is over
    resolves   somebody looks at the parked job, and says that what is in doubt was done
    """

    name: str
    refuses: str = ""
    turns_at: str = ""
    by_deadline: bool = False
    loses: str = ""
    first: Fault | None = None
    retains: bool = False
    resolves: bool = False


def of(definition: saga.Saga) -> Iterator[Script]:
    yield Script(name="all good")
    for step in definition.steps:
        yield Script(name=f"{step.name} refused", refuses=_forward(step))
    yield from _turned(definition)
    yield from _recovered(definition)
    yield Script(name="removed after its term", retains=True)


def _turned(definition: saga.Saga) -> Iterator[Script]:
    pivot = definition.pivot_index()
    before = definition.steps[:pivot]
    remote = [step for step in before if isinstance(step.effect, saga.Effect)]
    for number, step in enumerate(remote):
        operation = _forward(step)
        yield Script(name=f"cancelled during {step.name}", turns_at=operation)
        if number == 0:
            yield Script(name="past its deadline", turns_at=operation, by_deadline=True)
        assert isinstance(step.effect, saga.Effect), "only remote steps have requests"
        if step.effect.probe or step.effect.tombstone:
            name = f"cancelled during {step.name}, request lost"
            yield Script(name=name, turns_at=operation, loses=operation)


def _recovered(definition: saga.Saga) -> Iterator[Script]:
    """Runs that recover from something already: what they do on the way can be disturbed too."""
    remote = [step for step in definition.steps if isinstance(step.effect, saga.Effect)]
    if not remote:
        return
    yield Script(name="worker lost in a call", first=Fault("vanish", "call.after"))
    for number, step in enumerate(remote, start=1):
        assert isinstance(step.effect, saga.Effect), "only remote steps have requests"
        if step.effect.probe:
            for kind in ("lost-before", "lost-after"):
                name = f"{step.name} unknown, {'not ' * (kind == 'lost-before')}landed"
                yield Script(name=name, first=Fault(kind, "call.before", number))
        elif step.effect.key_lifetime is None:
            name = f"{step.name} answered after its lease"
            yield Script(name=name, first=Fault("pause", "call.after", number))
            name = f"{step.name} settled by a person"
            yield Script(name=name, first=Fault("vanish", "call.after", number), resolves=True)
    last, undone = definition.steps[-1], _remote_undos(definition)
    if undone and definition.pivot_index() == len(definition.steps) - 1:
        number = len(remote) + 1
        yield Script(
            name="an undo unknown",
            refuses=_forward(last),
            first=Fault("lost-after", "call.before", number),
        )


def _remote_undos(definition: saga.Saga) -> list[saga.Step]:
    return [
        step
        for step in definition.steps
        if isinstance(step.effect_of(Direction.BACKWARD), saga.Effect)
        and not isinstance(step.undo, saga.NotUndoable)
    ]


def _forward(step: saga.Step) -> str:
    return f"{step.name}:{Direction.FORWARD}"

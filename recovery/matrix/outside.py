"""The outside of a saga under test: a scripted provider for every step, with a book of effects of its own.

The book is the second witness. It counts what an operation id did, and knows nothing of attempts and receipts: a call that
is made twice without a key is two effects. A LOCAL step's effect is a row of the same transaction, as it is in life.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from uuid import UUID

from ledger import outcomes, saga, sql
from ledger.saga import Call, Direction

ATTEMPTS_MIN = 4  # a fault may use up some: the matrix is about gaps, not about budgets
Effects = dict[str, int]
LOCAL_EFFECTS = """
SELECT operation FROM matrix_effect WHERE job = %s
"""


@dataclass(slots=True)
class Plan:
    """What the outside does to the job of a case. Operations are named `step:direction`.

    refuses    the operation it turns down
    loses      the operation whose first request it never gets, and whose caller never hears
    meanwhile  what happens elsewhere when that operation's first request is under way
    """

    refuses: str = ""
    loses: str = ""
    at: str = ""
    meanwhile: Callable[[UUID], None] = lambda _job: None


@dataclass(slots=True)
class Outside:
    """All providers, and what they did. `plan` is of the case that is played; `next_lost` is set by a fault of the wire, for
    one call of any kind.
    """

    plan: Plan = field(default_factory=Plan)
    next_lost: Literal["", "request", "reply"] = ""
    _effects: Counter[str] = field(default_factory=Counter)
    _buried: set[str] = field(default_factory=set)
    _arrived: set[str] = field(default_factory=set)

    def under_test(self, definition: saga.Saga) -> saga.Saga:
        """The same shape, with this outside in place of every handler, and arguments that need no input."""
        steps = [self._step(step) for step in definition.steps]
        return replace(definition, name=f"matrix/{definition.name}", steps=steps, input=dict)

    def has(self, operation_id: str) -> bool:
        return self._effects[operation_id] > 0

    def effects(self, job: UUID) -> Effects:
        """How often each operation of a job took effect, LOCAL ones included."""
        found = Counter({o: n for o, n in self._effects.items() if o.startswith(str(job))})
        found.update(row[0] for row in sql.fetch(LOCAL_EFFECTS, [job]))
        return {operation.split(":", 1)[1]: count for operation, count in sorted(found.items())}

    def _step(self, step: saga.Step) -> saga.Step:
        undoable = not isinstance(step.undo, saga.NotUndoable) and step.undo is not None
        back = step.effect_of(Direction.BACKWARD)
        return replace(
            step,
            do=self._handler(step.effect),
            undo=self._handler(back) if undoable else step.undo,
            effect=self._effect(step.effect),
            undo_effect=self._effect(back),
            arguments=lambda _input, _done: {"do": step.name},
            undo_arguments=lambda _input, done: {"undo": done[step.name].ref},
            rows=None,
            attempts=max(step.attempts, ATTEMPTS_MIN),
            undo_attempts=max(step.undo_attempts, ATTEMPTS_MIN),
        )

    def _effect(self, effect: saga.Effect | saga.Local) -> saga.Effect | saga.Local:
        if isinstance(effect, saga.Local):
            return effect
        return replace(
            effect,
            probe=self._wired(self._look_up) if effect.probe else None,
            tombstone=self._wired(self._bury) if effect.tombstone else None,
            call_seconds=1.0,
        )

    def _handler(self, effect: saga.Effect | saga.Local) -> saga.Handler:
        if isinstance(effect, saga.Local):
            return self._change
        honours_key = effect.key_lifetime is not None
        return self._wired(lambda call: self._arrive(call, honours_key=honours_key))

    def _wired[T](self, answer: Callable[[Call], T]) -> Callable[[Call], T]:
        """Over a wire that may lose the request, or the reply."""

        def handler(call: Call) -> T:
            lost, self.next_lost = self.next_lost, ""
            if lost == "request":
                raise outcomes.Unknown("request_lost")
            found = answer(call)
            if lost == "reply":
                raise outcomes.Unknown("reply_lost")
            return found

        return handler

    def _arrive(self, call: Call, *, honours_key: bool) -> outcomes.Outcome:
        plan, operation = self.plan, _operation(call)
        is_first = call.operation_id not in self._arrived
        self._arrived.add(call.operation_id)
        if is_first and plan.at == operation:
            plan.meanwhile(call.job_id)
        if is_first and plan.loses == operation:
            raise outcomes.Unknown("request_lost")
        if call.operation_id in self._buried:
            return outcomes.Refused("tombstoned")
        if plan.refuses == operation:
            return outcomes.Refused("turned_down")
        if not (honours_key and self.has(call.operation_id)):
            self._effects[call.operation_id] += 1
        return _confirmed(call)

    def _change(self, call: Call) -> outcomes.Outcome:
        if self.plan.refuses == _operation(call):
            return outcomes.Refused("turned_down")
        sql.fetch("INSERT INTO matrix_effect VALUES (%s, %s)", [call.job_id, call.operation_id])
        return _confirmed(call)

    def _look_up(self, call: Call) -> outcomes.Sighted:
        return _confirmed(call) if self.has(call.operation_id) else outcomes.NotLanded()

    def _bury(self, call: Call) -> outcomes.Outcome:
        if self.has(call.operation_id):
            return _confirmed(call)
        self._buried.add(call.operation_id)
        return outcomes.Refused("tombstoned")


@contextmanager
def opened() -> Iterator[Outside]:
    """An outside whose LOCAL effects have a table."""
    sql.fetch(
        "CREATE TABLE IF NOT EXISTS matrix_effect (job uuid NOT NULL, operation text NOT NULL)"
    )
    try:
        yield Outside()
    finally:
        sql.replace_connection()
        sql.fetch("DROP TABLE matrix_effect")


def _operation(call: Call) -> str:
    return call.operation_id.split(":", 1)[1]


def _confirmed(call: Call) -> outcomes.Confirmed:
    data: Mapping[str, Any] = dict(call.arguments)
    return outcomes.Confirmed(ref=f"ref-{_operation(call)}", data=data)

"""A scripted saga for engine tests: each operation does what its script says, and a list keeps what was called.

The handlers are ordinary handlers, called by the real engine from real threads; only the outside world is scripted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

from ledger import outcomes, saga
from ledger.saga import Call

Answer = Callable[[Call], outcomes.Sighted]
_numbers = count(1)


def confirm(call: Call) -> outcomes.Confirmed:
    return outcomes.Confirmed(ref=f"ref-{call.operation_id}", data=dict(call.arguments))


def raising(error: Exception) -> Answer:
    def answer(call: Call) -> outcomes.Sighted:
        raise error

    return answer


@dataclass
class World:
    """What the outside does, per `step:direction` or `step:direction:probe`: one answer per call, then `confirm`."""

    script: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    called: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def says(self, what: str, *answers: Answer) -> None:
        self.script[what].extend(answers)

    def handle(self, what: str) -> Answer:
        def handler(call: Call) -> outcomes.Sighted:
            self.called.append(what)
            self.calls.append(call)
            answers = self.script[what]
            return answers.pop(0)(call) if answers else confirm(call)

        return handler

    def effect(self, step: str, **promises: Any) -> saga.Effect:
        return saga.Effect(
            provider="world", call_seconds=2.0, **{"key_lifetime": timedelta(days=1), **promises}
        )

    def times(self, what: str) -> int:
        return self.called.count(what)


def step(world: World, name: str, *, probe: bool = False, **options: Any) -> saga.Step:
    """A step of the world; `probe` makes its forward effect and its undo askable."""

    def effect(direction: str) -> saga.Effect:
        asked = world.handle(f"{name}:{direction}:probe")
        return world.effect(name, **({"probe": asked} if probe else {}))

    return saga.Step(
        name,
        **{
            "do": world.handle(f"{name}:forward"),
            "undo": world.handle(f"{name}:backward"),
            "effect": effect("forward"),
            "undo_effect": effect("backward"),
            **options,
        },
    )


@contextmanager
def registered(definition: saga.Saga) -> Iterator[saga.Saga]:
    """Known to this build within the block."""
    saga.register(definition)
    try:
        yield definition
    finally:
        saga.forget(definition)


@contextmanager
def trip(world: World, *, probe: bool = False, **options: Any) -> Iterator[saga.Saga]:
    """room, payment and the pivot ticket."""
    definition = saga.Saga(
        f"test.trip.{next(_numbers)}",
        version=1,
        steps=[
            step(world, "room", probe=probe, **options),
            step(world, "payment", probe=probe, **options),
            step(
                world,
                "ticket",
                probe=probe,
                pivot=True,
                **{**options, "undo": saga.NotUndoable("last step")},
            ),
        ],
    )
    with registered(definition):
        yield definition

"""The saga of the tests of memory: a step that takes ever more of it, when its input says so. A worker is told to import
this module; no build knows it otherwise.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ledger import outcomes, saga

CHUNK_BYTES = 16 << 20
TAKEN_MAX_BYTES = 384 << 20  # without a limit it is sated at last, and the test fails


def step(call: saga.Call) -> outcomes.Confirmed:
    if call.arguments["hungry_at"] == call.arguments["step"]:
        kept: list[bytes] = []
        while len(kept) * CHUNK_BYTES < TAKEN_MAX_BYTES:
            kept.append(
                b"\1" * CHUNK_BYTES
            )  # written to: memory that is only asked for costs nothing
    return outcomes.Confirmed(ref=call.operation_id)


def arguments_of(name: str) -> saga.Arguments:
    def derive(stored: Any, _receipts: Mapping[str, Any]) -> dict[str, Any]:
        return {"step": name, "hungry_at": stored.get("hungry_at", "")}

    return derive


EFFECT = saga.Effect(provider="larder", key_lifetime=timedelta(days=1), call_seconds=1.0)
meal = saga.register(
    saga.Saga(
        "test.hungry",
        version=1,
        steps=[
            saga.Step(
                "local", do=step, undo=step, effect=saga.LOCAL, arguments=arguments_of("local")
            ),
            saga.Step("call", do=step, undo=step, effect=EFFECT, arguments=arguments_of("call")),
        ],
    )
)

"""The saga of the poison drill: a step that ends the process which runs it, when its input says so. Known to a build only
while AMENDS_DRILLS is set, so that no ordinary worker can be given one.
"""

import os
import signal
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ledger import outcomes, saga

DRILLS_VARIABLE = "AMENDS_DRILLS"


def call(placed: saga.Call) -> outcomes.Confirmed:
    """Confirmed, unless the job is poison for the step it is at: then SIGKILL of this very process."""
    if placed.arguments.get("dies_at", "") == placed.arguments.get("step"):
        os.kill(os.getpid(), signal.SIGKILL)
    return outcomes.Confirmed(ref=placed.operation_id)


def arguments_of(step: str) -> saga.Arguments:
    def derive(stored: Any, _receipts: Mapping[str, Any]) -> dict[str, Any]:
        return {"step": step, "dies_at": stored.get("dies_at", "")}

    return derive


EFFECT = saga.Effect(provider="drill", key_lifetime=timedelta(days=1), call_seconds=1.0)
trip = saga.Saga(
    "drill.poison",
    version=1,
    steps=[
        saga.Step("note", do=call, undo=call, effect=saga.LOCAL, arguments=arguments_of("note")),
        saga.Step("call", do=call, undo=call, effect=EFFECT, arguments=arguments_of("call")),
        saga.Step(
            "end",
            do=call,
            undo=saga.NotUndoable("last step"),
            effect=EFFECT,
            pivot=True,
            arguments=arguments_of("end"),
        ),
    ],
)


def register() -> None:
    """Make it known, if this process runs for a drill."""
    if DRILLS_VARIABLE in os.environ:
        saga.register(trip)

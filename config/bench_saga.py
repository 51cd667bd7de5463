"""The saga of `manage.py bench drain`: three remote steps whose calls only take time. Known to a build only while
AMENDS_BENCH_LATENCY is set, so that no ordinary worker can be given one.
"""

import os
import random
import select
from datetime import timedelta

from ledger import outcomes, saga

LATENCY_VARIABLE = "AMENDS_BENCH_LATENCY"


def call(placed: saga.Call) -> outcomes.Confirmed:
    """Takes LATENCY seconds on average, exponentially distributed; nothing else."""
    latency = float(os.environ.get(LATENCY_VARIABLE, "0"))
    if latency:
        # One system call and no shared lock: the benchmark is of the engine, not of a waiting room of its own.
        select.select((), (), (), random.expovariate(1 / latency))
    return outcomes.Confirmed(ref=placed.operation_id)


EFFECT = saga.Effect(provider="bench", key_lifetime=timedelta(days=1))
trip = saga.Saga(
    "bench.trip",
    version=1,
    steps=[
        saga.Step("room", do=call, undo=call, effect=EFFECT),
        saga.Step("payment", do=call, undo=call, effect=EFFECT),
        saga.Step("ticket", do=call, undo=saga.NotUndoable("last step"), effect=EFFECT, pivot=True),
    ],
)


def register() -> None:
    """Make it known, if this process runs for a benchmark."""
    if LATENCY_VARIABLE in os.environ:
        saga.register(trip)

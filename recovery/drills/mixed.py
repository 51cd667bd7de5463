"""Three to five faults of the processes at once, in random windows drawn by the seed, on top of a provider that misbehaves.

Shows that promises which hold alone hold together. The same seed draws the same schedule; what the processes make of it
differs from run to run, as it does in life.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

from recovery.drills import faults
from recovery.drills import place as names
from recovery.drills.run import Drill, Run, declines

Fault = Callable[[Run], None]


def _leave(run: Run) -> None:
    """As in the drill of its own, but leases may be lost to other faults meanwhile."""
    run.place.end(names.FIRST)
    run.seen["terms"] += 1
    run.note(f"SIGTERM to {names.FIRST}; started again when it had left")
    run.place.start(names.FIRST)


FAULTS: Mapping[str, tuple[Fault, frozenset[str]]] = {
    "child killed": (faults.kill_child, frozenset()),
    "worker killed": (faults.kill_worker, frozenset()),
    "worker told to leave": (_leave, frozenset()),
    "children stopped": (lambda run: faults.suspend(run, names.SECOND), frozenset()),
    "tickets doubled": (faults.redeliver, frozenset()),
    "broker emptied": (faults.flush_broker, frozenset()),
    "broker killed": (lambda run: faults.restart_broker(run, 2.0), frozenset({names.BROKER})),
    "backends ended": (faults.terminate_backends, frozenset()),
    "database stopped": (lambda run: faults.restart_database(run, 1.0), frozenset({names.DATABASE})),
    "beat killed": (faults.restart_beat, frozenset()),
}  # fmt: skip
MANNERS: tuple[Mapping[str, Any], ...] = (
    {"do": "drop_after", "match": "*", "probability": 0.08},
    {"do": "drop_before", "match": "*", "probability": 0.05},
    {"do": "throttle", "match": "*", "probability": 0.08, "retry_after": 1},
    {"do": "hold", "match": "capture", "probability": 0.08, "seconds": 1.5},
    {"do": "delay", "match": "*", "probability": 0.1, "seconds": 0.9},
    {"do": "error_before", "match": "*", "probability": 0.06, "status": 503},
    {"do": "error_after", "match": "*", "probability": 0.06, "status": 500},
    {"do": "truncate", "match": "*", "probability": 0.04},
    {"do": "garbage", "match": "*", "probability": 0.04},
    {"do": "duplicate", "match": "*", "probability": 0.04},
    {"do": "other_amount", "match": "capture", "probability": 0.02},
)
FEWEST, MOST = 3, 5
PAUSE_SECONDS = 0.6


def play(run: Run) -> None:
    chosen = choose(run.chance, run.place.own_servers)
    manners = run.chance.sample(MANNERS, 4)
    run.place.sandbox.misbehave(*manners, *declines(), seed=run.chance.randrange(2**31))
    run.note(
        f"drawn: {', '.join(chosen)}; the provider: {', '.join(str(m['do']) for m in manners)}"
    )
    struck = 0
    while not run.load.is_over() or struck < len(chosen):
        name = chosen[struck] if struck < len(chosen) else run.chance.choice(chosen)
        faults.safely(FAULTS[name][0], run)
        run.seen["faults"] += 1
        struck += 1
        run.place.wait_until(run.load.is_over, PAUSE_SECONDS * run.chance.random())


def choose(chance: random.Random, own_servers: frozenset[str]) -> list[str]:
    """Three to five of the faults that can be had here."""
    possible = [name for name, (_, needs) in FAULTS.items() if needs <= own_servers]
    return chance.sample(possible, chance.randint(FEWEST, MOST))


DRILL = Drill(
    name="mixed",
    done="Three to five faults of processes and servers at once, drawn by the seed, and a provider that misbehaves.",
    faults=play,
    must_see=("faults",),
    recovers="end",
)

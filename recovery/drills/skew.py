"""A process is started anew under a wrong clock: ten minutes off, in jumps, or twice as fast.

Shows that no decision is taken by a process's own clock. Done with libfaketime, where the machine has it; the monotonic
clock stays true, as it does on a machine whose time is set.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from recovery.drills import place as names
from recovery.drills.later import Later
from recovery.drills.run import Run
from recovery.drills.surroundings import Surroundings

SKEWS: Mapping[str, str] = {
    "ten minutes ahead": "+10m",
    "ten minutes behind": "-10m",
    "twice as fast": "+0 x2",
    "jumping": "",
}
JUMPS = ("+10m", "-10m")
JUMP_SECONDS = 2.0
# libfaketime applies its offset to the monotonic time at which Python's own sleep is to end; the kernel refuses that time.
# The interpreter reads this file first.
SLEEP = """import select, time
time.sleep = lambda seconds: (select.select([], [], [], seconds), None)[1]
"""
SKEWED = (names.API, names.FIRST, names.SECOND, names.COMPENSATION, names.SWEEPS)


def strike(run: Run, place: Surroundings, later: Later) -> None:
    name, skew = run.chance.choice(SKEWED), run.chance.choice(list(SKEWS))
    own = place.workdir / f"clock-{name}"
    own.mkdir(exist_ok=True)
    clock = own / "clock"
    clock.write_text(JUMPS[0])
    (own / "sitecustomize.py").write_text(SLEEP)
    run.watch.fault("clock skewed")
    place.restart(name, conditions(place.faketime(), skew, clock))
    if skew == "jumping":
        later.after(JUMP_SECONDS, partial(clock.write_text, JUMPS[1]))
    run.seen["skews"] += 1
    run.seen[f"skew: {skew}"] += 1
    run.note(f"{name} under a clock that is {skew}")


def conditions(library: str, skew: str, clock: Path) -> Mapping[str, str]:
    """The environment of a process under this clock: `clock` is what a jumping one follows; SLEEP lies beside it."""
    follows = {"FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    return {
        "LD_PRELOAD": library,
        "PYTHONPATH": str(clock.parent),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        **({"FAKETIME": SKEWS[skew]} if SKEWS[skew] else follows),
    }

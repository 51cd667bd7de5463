"""Workers leave and die: TERM, a child by KILL, a whole worker by KILL, and by KILL at each named gap of the code.

Shows that an interruption at any step leaves a checkpoint to go on from or an outcome known to be unknown. A child that is
armed kills itself at its point; a worker that is armed stops there and is then killed as a whole, its watcher too.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger import crashpoints
from recovery.drills import faults
from recovery.drills import place as names
from recovery.drills.run import Drill, Run

CHILD_POINTS = (
    *("promote.after@1", "claim.after@1", "renew.after@1", "settle.before@2", "settle.after@1"),
    *("call.before@1", "call.after@1", "call.before@2", "call.after@2"),
    *("local.after_handlers@1", "local.after@1", "local.after@2"),
)
WORKER_POINTS = ("claim.after@1", "settle.after@1", "call.after@1", "local.after_handlers@2")
AT_ONCE, READY_SECONDS, FIRE_SECONDS = 4, 60.0, 40.0


@dataclass(slots=True)
class Doomed:
    """A worker that is armed to meet its end at a point. `fired` exists once it has."""

    name: str
    point: str
    kind: str
    fired: Path

    @property
    def env(self) -> dict[str, str]:
        point, _, nth = self.point.partition("@")
        return {
            crashpoints.ARM_VARIABLE: f"{point}={self.kind}@{nth}",
            crashpoints.ONCE_VARIABLE: str(self.fired),
            "SLOTS": "1",
        }


def play(run: Run) -> None:
    faults.kill_child(run)
    faults.leave(run, names.FIRST, names.SECOND)
    doomed = [
        Doomed(f"worker.doomed-{n}", point, kind, run.place.workdir / f"fired-{run.load.prefix}{n}")
        for n, (point, kind) in enumerate(_points(run))
    ]
    for first in range(0, len(doomed), AT_ONCE):
        run.place.end(names.FIRST, names.SECOND)  # so that the doomed get all the work
        meet(run, doomed[first : first + AT_ONCE])
    faults.kill_worker(run)


def _points(run: Run) -> list[tuple[str, str]]:
    """All of them, or of a small run a few."""
    children, workers = list(CHILD_POINTS), list(WORKER_POINTS)
    if not run.is_large:
        children, workers = run.chance.sample(children, 2), run.chance.sample(workers, 1)
    return [(point, "kill") for point in children] + [(point, "pause") for point in workers]


def meet(run: Run, doomed: Sequence[Doomed]) -> None:
    """Start them, book until each has met its point, and kill them all: what only stopped there, and what went on."""
    for one in doomed:
        run.place.spawn(one.name, one.env, 1)
    run.wait(
        "armed workers", lambda: all(run.place.is_ready(d.name) for d in doomed), READY_SECONDS
    )
    booked = 0

    def have_fired() -> bool:
        nonlocal booked
        if run.load.is_over() and booked < 20 * len(doomed):
            for stay in run.place.stays(2):
                booked += 1
                run.load.book(f"{doomed[0].name}-{booked}", stay)
        return all(one.fired.exists() for one in doomed)

    run.place.wait_until(have_fired, FIRE_SECONDS)
    run.place.start(names.FIRST, names.SECOND)
    fault = run.watch.fault(faults.WORKER)
    for one in doomed:
        _note(run, one)
        run.place.kill(one.name, signal.SIGKILL, group=True)
        run.seen["kills"] += 1
    run.place.end(*(one.name for one in doomed))
    faults.await_recovery(run, fault)


def _note(run: Run, one: Doomed) -> None:
    if not one.fired.exists():
        run.violations.append(f"{one.point} was not reached by {one.name}")
        return
    run.seen["points"] += 1
    who = "a child" if one.kind == "kill" else "a whole worker"
    run.note(f"kill -9 of {who} at {one.point}")


DRILL = Drill(
    name="worker-stop",
    done="Workers are told to leave, children and whole workers are killed, at random and at named gaps of the code.",
    faults=play,
    must_see=("terms", "kills", "points", "owner.lost", "jobs.reclaimed lease_expired"),
    recovers="claim",
)

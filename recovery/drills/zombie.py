"""Workers stand still beyond their leases, others take over, and then the first ones go on with what they knew.

Shows that a stale owner can change nothing: its writes are refused, counted, and what they carried becomes a sighting.
"""

from recovery.drills import faults
from recovery.drills import place as names
from recovery.drills.run import Drill, Run

ROUNDS_MAX, REFUSED_SMALL, REFUSED_LARGE = 8, 1, 60
LOG_SECONDS, HELD = 5.0, 16


def play(run: Run) -> None:
    wanted = REFUSED_LARGE if run.is_large else REFUSED_SMALL
    for number in range(ROUNDS_MAX):
        faults.suspend(run, (names.FIRST, names.SECOND)[number % 2], HELD if run.is_large else 3)
        # What they wake up to is written within their next turn.
        run.place.wait_until(lambda: _refused(run) >= wanted, LOG_SECONDS)
        if _refused(run) >= wanted:
            break


def _refused(run: Run) -> int:
    return run.events.count()["write.refused"]


DRILL = Drill(
    name="zombie",
    done="All children of a worker are stopped (SIGSTOP) beyond their leases, and go on (SIGCONT) when others own the jobs.",
    faults=play,
    must_see=("zombies", "write.refused", "jobs.reclaimed lease_expired"),
    recovers="claim",
    rules=[{"do": "delay", "match": "*", "probability": 0.7, "seconds": 0.7}],
)

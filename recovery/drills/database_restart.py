"""PostgreSQL is stopped in mode immediate and started again while jobs run.

Shows that nothing accepted is lost, that connections are replaced, and that what came back meanwhile is stored from memory
or found again by asking.
"""

from recovery.drills import faults
from recovery.drills import place as names
from recovery.drills.run import Drill, Run

ROUNDS_SMALL, ROUNDS_LARGE = 1, 4
DOWN_SECONDS = 2.0


def play(run: Run) -> None:
    for _ in range(ROUNDS_LARGE if run.is_large else ROUNDS_SMALL):
        faults.restart_database(run, DOWN_SECONDS * run.chance.random())
        run.wait("the workers back at work", lambda: run.running() > 0 or run.load.is_over())


DRILL = Drill(
    name="database-restart",
    done="PostgreSQL is stopped in mode immediate while jobs run, stays down for up to two seconds, and is started again.",
    faults=play,
    must_see=("database_restarts", "write.repeated"),
    recovers="end",
    needs=frozenset({names.DATABASE}),
)

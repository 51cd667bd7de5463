"""All of the broker is lost while bookings come in: emptied, then killed and back empty.

Shows that accepted is accepted in PostgreSQL: the API answers 2xx throughout, in bounded time, and the sweeps find every
job whose ticket is gone.
"""

from recovery.drills import faults
from recovery.drills import place as names
from recovery.drills.run import Drill, Run

DOWN_SECONDS_SMALL, DOWN_SECONDS_LARGE = 3.0, 10.0
SLOWEST_SECONDS = (
    3.0  # with two cores and everything else on them; the publisher itself waits 0.3 s at most
)


def play(run: Run) -> None:
    run.wait_running()
    faults.flush_broker(run)
    down = DOWN_SECONDS_LARGE if run.is_large else DOWN_SECONDS_SMALL
    faults.restart_broker(run, down)
    run.wait("every booking answered", run.load.is_over, 90.0)
    faults.flush_broker(run)
    journal = run.load.journal
    refused = sum(n for status, n in journal.statuses.items() if status >= 300)
    run.expect(
        holds=not refused and not journal.unanswered,
        otherwise=f"{refused} answers were not 2xx, {journal.unanswered} requests had none",
    )
    run.expect(
        holds=journal.slowest < SLOWEST_SECONDS,
        otherwise=f"an answer took {journal.slowest:.1f} s while the broker was away",
    )


DRILL = Drill(
    name="broker-loss",
    done="FLUSHALL, then kill -9 of Valkey and an empty one in its place, then FLUSHALL again, while bookings come in.",
    faults=play,
    must_see=("flushes", "broker_restarts", "ticket.failed", "answers_2xx"),
    recovers="end",
    needs=frozenset({names.BROKER}),
)

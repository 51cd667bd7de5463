"""A job whose handler kills its own process, whoever drives it.

Shows that it is parked with its reason after three strikes, and that its neighbours pay nothing for having been driven by
the same processes.
"""

from uuid import UUID

from recovery.drills.run import Drill, Run

JOBS_SMALL, JOBS_LARGE = 1, 3
PARK_SECONDS = 90.0
PARKED = "SELECT count(*) FROM ledger_job WHERE id = ANY(%s::uuid[]) AND state = 'parked' AND parked_reason = %s"
REASON = "worker_lost"
LOST = "SELECT coalesce(sum(leases_lost), 0) FROM ledger_job WHERE id = ANY(%s::uuid[])"


def play(run: Run) -> None:
    run.wait_running()
    count = JOBS_LARGE if run.is_large else JOBS_SMALL
    jobs = [run.place.submit_poison(f"{run.load.prefix}poison-{n}") for n in range(count)]
    run.watch.fault("poison submitted")
    run.note("jobs whose handler kills its own process, among ordinary bookings")
    run.wait("poison parked", lambda: _parked(run, jobs) == count, PARK_SECONDS)
    run.seen["parked_worker_lost"] = _parked(run, jobs)
    run.seen["processes_lost"] = run.place.sql(LOST, [jobs])[0][0]


def _parked(run: Run, jobs: list[UUID]) -> int:
    found: int = run.place.sql(PARKED, [jobs, REASON])[0][0]
    return found


DRILL = Drill(
    name="poison",
    done="Jobs whose handler kills its own process every time, among ordinary bookings.",
    faults=play,
    must_see=("parked_worker_lost", "processes_lost"),
    recovers="end",
)

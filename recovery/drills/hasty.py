"""Every sweep, retention among them, at ten times its rate.

Shows that sweeps may overlap and come too often, and that retention takes what is past its term and nothing else: the
window's own jobs are all judged afterwards, some jobs of long ago must be gone.
"""

from collections.abc import Mapping
from uuid import UUID

from recovery.drills import place as names
from recovery.drills.run import Run
from recovery.drills.surroundings import Surroundings

TIMES = 10
OLD_JOBS, TERM_DAYS = 5, 7
END_SECONDS, GONE_SECONDS = 40.0, 15.0
OPEN = "SELECT count(*) FROM ledger_job WHERE id = ANY(%s::uuid[]) AND finished_at IS NULL"
THERE = "SELECT count(*) FROM ledger_job WHERE id = ANY(%s::uuid[])"


def strike(run: Run, place: Surroundings) -> None:
    key = f"old-{run.load.prefix}{run.seen['hasty_sweeps']}-"
    jobs = [place.submit_plain(f"{key}{number}") for number in range(OLD_JOBS)]
    conditions = rates(place.periods.sweep)
    run.watch.fault("hasty sweeps")
    for name in (names.SWEEPS, names.BEAT):
        place.restart(name, conditions)
    old = _aged(place, jobs)
    place.wait_until(lambda: place.sql(THERE, [old])[0][0] == 0, GONE_SECONDS)
    run.seen["hasty_sweeps"] += 1
    run.seen["retained"] += len(old) - place.sql(THERE, [old])[0][0]
    run.note(f"sweeps and retention at {TIMES} times their rate")


def rates(sweep: float) -> Mapping[str, str]:
    return {
        "SWEEP_SECONDS": f"{sweep / TIMES:g}",
        "SWEEP_SECONDS_RARE": f"{sweep:g}",
        "RETENTION_DAYS": str(TERM_DAYS),
    }


def _aged(place: Surroundings, jobs: list[UUID]) -> list[UUID]:
    """They ended a day longer ago than the term. Where a fault keeps them from their end, none did."""
    if not place.wait_until(lambda: place.sql(OPEN, [jobs])[0][0] == 0, END_SECONDS):
        return []
    place.age(jobs, TERM_DAYS + 1)
    return jobs

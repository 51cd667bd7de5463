"""A hold expires while its payment is put off, and another guest takes the room.

Shows that a late release gives back nothing that belongs to somebody else: it is a recorded no-op, and the first guest is
paid back.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from recovery.drills.load import Told, job_of
from recovery.drills.run import Drill, Run

PAIRS_SMALL, PAIRS_LARGE = 2, 8
STALL: Mapping[str, Any] = {"do": "throttle", "match": "capture", "retry_after": 1}
STALE = """
SELECT count(*) FROM ledger_submission s JOIN ledger_receipt r ON r.job_id = s.job_id
WHERE starts_with(s.key, %s) AND r.evidence->>'stale' = 'true'
"""


def play(run: Run) -> None:
    run.wait("every booking answered", run.load.is_over, 90.0)  # a 429 holds up the whole fleet
    run.wait("the work done", lambda: run.running() == 0)
    stays = run.place.stays(PAIRS_LARGE if run.is_large else PAIRS_SMALL)
    run.place.sandbox.misbehave(STALL)
    firsts = [run.load.book(f"first-{n}", stay) for n, stay in enumerate(stays)]
    jobs = [job_of(run.place, one) for one in firsts]
    subjects = {one.booking for one in firsts}
    run.wait("the payments put off", lambda: subjects <= _asked_to_pay(run))
    run.place.sandbox.misbehave(*_stalls(firsts))
    for job in jobs:
        run.place.end_hold(job)
    run.wait("the rooms free again", lambda: all(map(run.place.has_hold_ended, jobs)))
    run.note("holds of the first guests ended while their payment was put off")
    seconds = [run.load.book(f"second-{n}", stay) for n, stay in enumerate(stays)]
    theirs = [job_of(run.place, one) for one in seconds]
    run.wait("the other guests' end", lambda: _have_ended(run, theirs))
    run.note("other guests booked the same rooms; then the first payments went through")
    run.place.sandbox.misbehave()
    run.wait("the first guests' end", lambda: _have_ended(run, jobs))
    run.seen["stale"] = run.place.sql(STALE, [run.load.prefix])[0][0]


def _stalls(firsts: list[Told]) -> list[Mapping[str, Any]]:
    return [{**STALL, "subject": one.booking} for one in firsts]


def _asked_to_pay(run: Run) -> set[str]:
    return {r["subject"] for r in run.place.sandbox.requests() if r["kind"] == "capture"}


def _have_ended(run: Run, jobs: list[UUID]) -> bool:
    rows = run.place.sql(
        "SELECT count(*) FROM ledger_job WHERE id = ANY(%s::uuid[]) AND finished_at IS NULL", [jobs]
    )
    return bool(rows[0][0] == 0)


DRILL = Drill(
    name="stale-compensation",
    done="A hold expires while its payment is put off, and another guest takes the room before the first one is undone.",
    faults=play,
    must_see=("stale",),
    recovers="doubt",
)

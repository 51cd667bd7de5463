"""Requests are held back in the provider's network and arrive late, some after their job has gone backward.

Shows that a job ends only when nothing of it can land any more: a late capture is refused by its tombstone, absorbed under
its id, or found and undone.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from recovery.drills import place as names
from recovery.drills.run import Drill, Run

CANCELS_SMALL, CANCELS_LARGE = 2, 40
ENDED = "SELECT id, state FROM ledger_job WHERE id = ANY(%s::uuid[])"


def play(run: Run) -> None:
    wanted = CANCELS_LARGE if run.is_large else CANCELS_SMALL
    turned: set[UUID] = set()

    def turn() -> bool:
        for one in _held(run):
            job = UUID(one["operation_id"].partition(":")[0])
            if len(turned) < wanted and job not in turned and run.place.cancel(job):
                turned.add(job)
        return run.load.is_over()

    run.wait("every booking answered", turn, 90.0)
    turn()
    run.seen["turned_while_out"] = len(turned)
    run.note("captures held back for up to six seconds; some of their jobs cancelled meanwhile")
    run.wait("the turned jobs' end", lambda: not _open(run, turned), run.place.periods.to_rest)
    run.place.sandbox.release()
    effects = {one["operation_id"] for one in run.place.sandbox.effects()}
    late = [one for one in _held(run) if UUID(one["operation_id"].partition(":")[0]) in turned]
    run.seen["late_refused"] = sum(one["operation_id"] not in effects for one in late)
    run.seen["late_undone"] = sum(one["operation_id"] in effects for one in late)
    run.seen["late_neutralised"] = len(late)


def _held(run: Run) -> list[Mapping[str, Any]]:
    ours = {told.booking for told in run.load.accepted()}
    return [
        one
        for one in run.place.sandbox.requests()
        if one["action"] == "hold" and one["subject"] in ours
    ]


def _open(run: Run, jobs: set[UUID]) -> names.Rows:
    ended = ("confirmed", "refused", "compensated", "parked")
    return [row for row in run.place.sql(ENDED, [list(jobs)]) if row[1] not in ended]


DRILL = Drill(
    name="late-effect",
    done="Most captures are held back in the provider's network, up to three times the request lifetime.",
    faults=play,
    must_see=("turned_while_out", "late_neutralised"),
    recovers="doubt",
    rules=[
        {"do": "hold", "match": "capture", "times": 4, "answer": True, "seconds": 3.0},
        *({"name": f"hold-{n}", "do": "hold", "match": "capture", "probability": 0.2, "seconds": seconds}
        for n, seconds in enumerate((0.7, 1.8, 6.0))),
    ],
)  # fmt: skip

"""Jobs whose checkpoint has a format that this build cannot read, as a newer build would leave them behind.

Shows that they are left alone, not guessed at and not in anyone's way; and that they go on once a build can read them.
"""

from typing import Any

from recovery.drills.run import Drill, Run

UNREADABLE = 99
CHOSEN_SMALL, CHOSEN_LARGE = 3, 20
MARK = """
WITH chosen AS (
    SELECT j.id, j.checkpoint_format FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
    WHERE starts_with(s.key, %s) AND j.state = 'waiting' AND j.checkpoint_format <> %s
        AND j.due_at > ledger_now() + interval '0.5 seconds' LIMIT %s FOR NO KEY UPDATE OF j SKIP LOCKED)
UPDATE ledger_job j SET acting_fence = j.fence, checkpoint_format = %s
FROM chosen WHERE j.id = chosen.id RETURNING j.id, chosen.checkpoint_format, j.fence, j.seq
"""
STANDING = "SELECT id, fence, seq, state FROM ledger_job WHERE id = ANY(%s::uuid[])"
RESTORE = """
UPDATE ledger_job SET acting_fence = fence, checkpoint_format = %s WHERE id = %s AND checkpoint_format = %s RETURNING id
"""
OTHERS = """
SELECT count(*) FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s) AND j.finished_at IS NULL AND j.checkpoint_format <> %s
"""
Marked = dict[Any, tuple[int, int, int]]


def play(run: Run) -> None:
    wanted = CHOSEN_LARGE if run.is_large else CHOSEN_SMALL
    marked: Marked = {}

    def mark() -> bool:
        params = [run.load.prefix, UNREADABLE, wanted - len(marked), UNREADABLE]
        marked.update({row[0]: row[1:] for row in run.place.sql(MARK, params)})
        return len(marked) >= wanted or run.load.is_over()

    run.wait("jobs that wait", mark)
    run.note(f"checkpoint format {UNREADABLE} on jobs that were waiting for a due time")
    run.watch.fault("unreadable checkpoints")
    run.place.sandbox.misbehave()
    run.wait("the neighbours' end", lambda: run.load.is_over() and _others_open(run) == 0, 90.0)
    _check(run, marked)
    for job, (before, _, _) in marked.items():
        run.seen["readable_again"] += len(run.place.sql(RESTORE, [before, job, UNREADABLE]))
    run.note("a readable format again, when every neighbour had ended")


def _others_open(run: Run) -> int:
    count: int = run.place.sql(OTHERS, [run.load.prefix, UNREADABLE])[0][0]
    return count


def _check(run: Run, marked: Marked) -> None:
    """Nobody claimed them: neither fence nor seq moved. They may have been ranked, that takes no authority."""
    for job, fence, seq, state in run.place.sql(STANDING, [list(marked)]):
        untouched = (fence, seq) == marked[job][1:] and state in ("waiting", "queued")
        run.seen["left_alone"] += untouched
        run.expect(
            holds=untouched, otherwise=f"job {job}: an unreadable checkpoint, and yet it is {state}"
        )


DRILL = Drill(
    name="checkpoint-version",
    done="Some jobs get a checkpoint format that no running build reads; when their neighbours have ended, a readable one.",
    faults=play,
    must_see=("left_alone", "readable_again"),
    recovers="end",
    rules=[
        {"name": "wait", "do": "throttle", "match": "capture", "probability": 0.6, "retry_after": 2}
    ],
)

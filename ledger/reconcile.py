"""Judging sightings of jobs that nobody owns: evidence that came after the owner had let go.

A sighting that decides a parked unknown sends the job back to `waiting`, where its next owner records it; one that
contradicts a final receipt parks the job as a contradiction, ended or not. Whoever judges holds no lease, so it takes
authority first: fence + 1, where the fence is still the one it saw. A person's ruling is as
good as a final receipt; a later ruling on the operation, or the closing of the job, outweighs a sighting.
Looks a week back, so that what it reads does not grow with all that ever ended.
"""

from ledger import crashpoints, sql, telemetry, tickets

JUDGE = """
WITH seen AS MATERIALIZED (
    SELECT DISTINCT ON (s.job_id) s.job_id, s.step, s.direction, s.outcome, f.outcome AS final
    FROM ledger_sighting s JOIN ledger_job j ON j.id = s.job_id
    LEFT JOIN ledger_receipt r ON r.job_id = s.job_id AND r.step = s.step AND r.direction = s.direction
        AND r.outcome IN ('confirmed', 'refused')
    CROSS JOIN LATERAL (SELECT coalesce((SELECT CASE p.act WHEN 'done' THEN 'confirmed' ELSE 'refused' END
        FROM ledger_resolution p WHERE p.job_id = s.job_id AND p.step = s.step AND p.direction = s.direction
            AND p.act IN ('done', 'not-done') ORDER BY p.id DESC LIMIT 1), r.outcome) AS outcome) f
    WHERE s.outcome IN ('confirmed', 'refused') AND s.at > (SELECT ledger_now()) - interval '7 days'
        AND ((j.state = 'parked' AND j.parked_reason = 'unknown_outcome' AND f.outcome IS NULL)
            OR (j.state IN ('confirmed', 'refused', 'compensated', 'closed') AND f.outcome <> s.outcome)
            OR (j.state = 'parked' AND j.parked_reason <> 'contradiction' AND f.outcome <> s.outcome))
        AND NOT EXISTS (SELECT 1 FROM ledger_resolution p WHERE p.job_id = s.job_id AND p.at > s.at AND (p.act = 'close'
            OR (p.act IN ('done', 'not-done') AND p.step = s.step AND p.direction = s.direction)))
    ORDER BY s.job_id, f.outcome NULLS LAST LIMIT %(limit)s),
held AS MATERIALIZED (
    SELECT j.id, j.fence, seen.step, seen.direction, seen.outcome, seen.final FROM seen
    JOIN ledger_job j ON j.id = seen.job_id WHERE j.owner IS NULL ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED)
UPDATE ledger_job j SET acting_fence = held.fence, fence = held.fence + 1,
    state = CASE WHEN held.final IS NULL THEN 'waiting' ELSE 'parked' END,
    due_at = CASE WHEN held.final IS NULL THEN ledger_now() ELSE j.due_at END,
    parked_reason = CASE WHEN held.final IS NULL THEN '' ELSE 'contradiction' END,
    parked_detail = CASE WHEN held.final IS NULL THEN ''
        ELSE format('%%s:%%s:%%s: the record says %%s, a sighting %%s', j.id, held.step, held.direction, held.final,
            held.outcome) END,
    parked_at = CASE WHEN held.final IS NULL THEN NULL ELSE ledger_now() END,
    finished_at = NULL
FROM held WHERE j.id = held.id AND j.fence = held.fence
RETURNING j.lane, j.state
"""


def judge(limit: int) -> int:
    """Judge the sightings of at most `limit` jobs without an owner; returns how many jobs moved."""
    crashpoints.reach("reconcile.before")
    moved = sql.fetch(JUDGE, {"limit": limit})
    crashpoints.reach("reconcile.after")
    for lane in {lane for lane, state in moved if state == "waiting"}:
        tickets.ring(lane)
    if moved:
        telemetry.emit("jobs.judged", level="warning", count=len(moved))
    return len(moved)

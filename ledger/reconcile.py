"""Judging sightings of jobs that nobody owns: evidence that came after the owner had let go.

A sighting that decides an operation in doubt sends its parked job back to `waiting`, where the next owner records it; so
does any that whoever parked it as unknown had not read: a sender that came back can send no more. One that contradicts what
is settled (another outcome, or another effect) parks the job as a contradiction, ended or not. Whoever judges holds no
lease, so it takes authority first: fence + 1, where the fence is still the one it saw. A person's ruling is as good as a
final receipt; a later ruling on the operation, or the closing of the job, outweighs a sighting. Looks a week back, so that
what it reads does not grow with all that ever ended.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from ledger import acts, crashpoints, singly, sql, telemetry, tickets

SEEN = """
WITH decided AS (
    SELECT s.job_id, s.step, s.direction, s.outcome, f.outcome AS final, CASE
        WHEN f.outcome IS NULL AND j.state = 'parked'
            AND j.parked_reason = ANY(%(goes_on)s) THEN 'goes on'
        WHEN f.outcome IS NULL AND j.state = 'closed' AND s.outcome = 'confirmed' THEN 'against'
        WHEN (f.outcome <> s.outcome OR (s.outcome = 'confirmed' AND f.ref <> '' AND s.evidence ->> 'ref' <> f.ref
                AND s.evidence ->> 'ref' <> ''))
            AND (j.finished_at IS NOT NULL OR j.state = 'parked' AND j.parked_reason <> 'contradiction') THEN 'against'
        END AS verdict
    FROM ledger_sighting s
    -- By its key alone: a plain join reads the whole table, because the age of evidence is estimated too high.
    CROSS JOIN LATERAL (SELECT * FROM ledger_job o WHERE o.id = s.job_id OFFSET 0) j
    LEFT JOIN LATERAL (
        SELECT outcome, ref FROM (
            SELECT CASE p.act WHEN 'done' THEN 'confirmed' ELSE 'refused' END AS outcome, p.evidence ->> 'ref' AS ref,
                0 AS turn, -p.id AS place
            FROM ledger_resolution p WHERE p.job_id = s.job_id AND p.step = s.step AND p.direction = s.direction
                AND p.act IN ('done', 'not-done')
            UNION ALL
            SELECT r.outcome, r.evidence ->> 'ref', 1, r.id FROM ledger_receipt r
            WHERE r.job_id = s.job_id AND r.step = s.step AND r.direction = s.direction
                AND r.outcome IN ('confirmed', 'refused')) either
        ORDER BY turn, place LIMIT 1) f ON true
    WHERE s.outcome IN ('confirmed', 'refused') AND s.at > (SELECT ledger_now()) - %(looks_back)s
        AND (j.state = 'parked' OR j.finished_at IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM ledger_resolution p WHERE p.job_id = s.job_id AND p.at > s.at AND (p.act = 'close'
            OR (p.act IN ('done', 'not-done') AND p.step = s.step AND p.direction = s.direction)))),
news AS (
    SELECT j.id AS job_id, '' AS step, '' AS direction, '' AS outcome, NULL AS final, 'goes on' AS verdict
    FROM ledger_job j WHERE j.state = 'parked' AND j.parked_reason = 'unknown_outcome'
        AND (SELECT count(*) FROM ledger_sighting s WHERE s.job_id = j.id) > j.heard),
seen AS MATERIALIZED (
    SELECT DISTINCT ON (job_id) * FROM (SELECT * FROM decided WHERE verdict IS NOT NULL UNION ALL SELECT * FROM news) e
    WHERE job_id <> ALL(%(tried)s::uuid[]) {only} ORDER BY job_id, verdict LIMIT %(limit)s)
"""
FOUND = f"{SEEN} SELECT job_id FROM seen"  # noqa: S608  constants of this module
JUDGE = f"""{SEEN},
held AS MATERIALIZED (
    SELECT j.id, j.fence, seen.* FROM seen
    JOIN ledger_job j ON j.id = seen.job_id WHERE j.owner IS NULL ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED)
UPDATE ledger_job j SET acting_fence = held.fence, fence = held.fence + 1,
    state = CASE held.verdict WHEN 'goes on' THEN 'waiting' ELSE 'parked' END,
    heard = NULL,
    due_at = CASE held.verdict WHEN 'goes on' THEN ledger_now() ELSE j.due_at END,
    parked_reason = CASE held.verdict WHEN 'goes on' THEN '' ELSE 'contradiction' END,
    parked_detail = CASE held.verdict WHEN 'goes on' THEN ''
        ELSE format('%%s:%%s:%%s: the record says %%s, a sighting %%s', j.id, held.step, held.direction,
            coalesce(held.final, 'nothing'), held.outcome) END,
    parked_at = CASE held.verdict WHEN 'goes on' THEN NULL ELSE ledger_now() END,
    finished_at = NULL
FROM held WHERE j.id = held.id AND j.fence = held.fence
RETURNING j.lane, j.state
"""  # noqa: S608  constants of this module


def judge(limit: int) -> int:
    """Judge the sightings of at most `limit` jobs without an owner; returns how many jobs moved."""
    return len(singly.written("reconcile", partial(_judge, limit), partial(_found, limit)))


def _judge(limit: int, only: singly.Only) -> list[Any]:
    crashpoints.reach("reconcile.before")
    moved = sql.fetch(*_asked(JUDGE, limit, only=only))
    crashpoints.reach("reconcile.after")
    for lane in {lane for lane, state in moved if state == "waiting"}:
        tickets.ring(lane)
    if moved:
        telemetry.emit("jobs.judged", level="warning", count=len(moved))
    return moved


def _found(limit: int, tried: Sequence[UUID]) -> list[UUID]:
    return [row[0] for row in sql.fetch(*_asked(FOUND, limit, tried=tried))]


def _asked(
    statement: str, limit: int, *, only: singly.Only = None, tried: Sequence[UUID] = ()
) -> tuple[str, dict[str, Any]]:
    params = {"limit": limit, "goes_on": sorted(acts.GOES_ON), "looks_back": acts.LOOKS_BACK}
    picked = "" if only is None else "AND job_id = ANY(%(only)s::uuid[])"
    return statement.format(only=picked), params | {"only": list(only or ()), "tried": list(tried)}

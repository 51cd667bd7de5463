"""Judging sightings of jobs that nobody owns: evidence that came after the owner had let go.

A sighting that decides an operation in doubt sends its parked job back to `waiting`, where the next owner records it; so
does any that whoever parked it as unknown had not read: a sender that came back can send no more. One that contradicts what
is settled (another outcome, or another effect) parks the job as a contradiction, ended or not. Whoever judges holds no
lease, so it takes authority first: fence + 1, where the fence is still the one it saw. A person's ruling is as good as a
final receipt; a later ruling on the operation, or the closing of the job, outweighs a sighting.

What a pass reads is bounded: the newest evidence, and one slice of the week before it, the next pass the next slice. So
evidence that came while a job was owned is looked at again, and again, after its owner has let go. Where a process has got
to is its own affair: one that begins anew begins with the oldest.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from ledger import acts, crashpoints, singly, sql, telemetry, tickets

NEWEST, SLICE = 500, 5_000
DECIDING = "outcome IN ('confirmed', 'refused') AND at > (SELECT ledger_now()) - %(looks_back)s"
# The last of the slice after this time; none, where less than a slice is left.
SLICE_END = f"""
SELECT at FROM ledger_sighting WHERE {DECIDING} AND at > coalesce(%(after)s::timestamptz, '-infinity')
ORDER BY at OFFSET %(slice)s - 1 LIMIT 1
"""  # noqa: S608  constants of this module
LOOKED_AT = f"""
    (SELECT job_id, step, direction, outcome, evidence ->> 'ref' AS ref, at FROM ledger_sighting
        WHERE {DECIDING} ORDER BY at DESC LIMIT %(newest)s)
    UNION ALL
    (SELECT job_id, step, direction, outcome, evidence ->> 'ref', at FROM ledger_sighting
        WHERE {DECIDING} AND at > coalesce(%(after)s::timestamptz, '-infinity')
        AND at <= coalesce(%(until)s::timestamptz, 'infinity'))"""  # noqa: S608
SEEN = f"""
WITH looked_at AS MATERIALIZED ({LOOKED_AT}),
decided AS (
    SELECT s.job_id, s.step, s.direction, s.outcome, f.outcome AS final, CASE
        WHEN f.outcome IS NULL AND j.state = 'parked'
            AND j.parked_reason = ANY(%(goes_on)s) THEN 'goes on'
        WHEN f.outcome IS NULL AND j.state = 'closed' AND s.outcome = 'confirmed' THEN 'against'
        WHEN (f.outcome <> s.outcome OR (s.outcome = 'confirmed' AND f.ref <> '' AND s.ref <> f.ref AND s.ref <> ''))
            AND (j.finished_at IS NOT NULL OR j.state = 'parked' AND j.parked_reason <> 'contradiction') THEN 'against'
        END AS verdict
    FROM looked_at s
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
    WHERE (j.state = 'parked' OR j.finished_at IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM ledger_resolution p WHERE p.job_id = s.job_id AND p.at > s.at AND (p.act = 'close'
            OR (p.act IN ('done', 'not-done') AND p.step = s.step AND p.direction = s.direction)))),
news AS (
    SELECT j.id AS job_id, '' AS step, '' AS direction, '' AS outcome, NULL AS final, 'goes on' AS verdict
    FROM ledger_job j WHERE j.state = 'parked' AND j.parked_reason = 'unknown_outcome'
        AND (SELECT count(*) FROM ledger_sighting s WHERE s.job_id = j.id) > j.heard),
seen AS MATERIALIZED (
    SELECT DISTINCT ON (job_id) * FROM (SELECT * FROM decided WHERE verdict IS NOT NULL UNION ALL SELECT * FROM news) e
    WHERE job_id <> ALL(%(tried)s::uuid[]) {{only}} ORDER BY job_id, verdict LIMIT %(limit)s)
"""  # noqa: S608  constants of this module
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


_got_to: datetime | None = None


def judge(limit: int) -> int:
    """Judge sightings of at most `limit` jobs without an owner; returns how many jobs moved."""
    global _got_to  # noqa: PLW0603  of this process
    asked: dict[str, Any] = {
        "limit": limit,
        "goes_on": sorted(acts.GOES_ON),
        "looks_back": acts.LOOKS_BACK,
    }
    asked |= {"newest": NEWEST, "slice": SLICE, "after": _got_to}
    rows = sql.fetch(SLICE_END, asked)
    asked["until"] = rows[0][0] if rows else None
    moved = len(singly.written("reconcile", partial(_judge, asked), partial(_found, asked)))
    if moved < limit:
        _got_to = asked["until"]
    return moved


def _judge(asked: dict[str, Any], only: singly.Only) -> list[Any]:
    crashpoints.reach("reconcile.before")
    moved = sql.fetch(*_statement(JUDGE, asked, only=only))
    crashpoints.reach("reconcile.after")
    for lane in {lane for lane, state in moved if state == "waiting"}:
        tickets.ring(lane)
    if moved:
        telemetry.emit("jobs.judged", level="warning", count=len(moved))
    return moved


def _found(asked: dict[str, Any], tried: Sequence[UUID]) -> list[UUID]:
    return [row[0] for row in sql.fetch(*_statement(FOUND, asked, tried=tried))]


def _statement(
    statement: str, asked: dict[str, Any], *, only: singly.Only = None, tried: Sequence[UUID] = ()
) -> tuple[str, dict[str, Any]]:
    picked = "" if only is None else "AND job_id = ANY(%(only)s::uuid[])"
    return statement.format(only=picked), asked | {"only": list(only or ()), "tried": list(tried)}

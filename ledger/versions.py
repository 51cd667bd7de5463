"""What the builds that run can drive, and the jobs that none of them can.

A build reports every saga version it drives, with the checkpoint formats it reads; a claim asks only for those. What would
break without this module is sight: a job of a version that was taken away would wait in its queue for ever, and nobody
would know. The promise: it is parked, for a person, only after no build has known it for the whole of UNSUPPORTED_SECONDS,
in which builds were heard of all the time: a fleet that was down says nothing about what it can drive.

A report guards nothing: one that is lost comes again with the next run.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings

from ledger import checkpoints, clock, crashpoints, saga, singly, sql, telemetry
from ledger.states import ParkedReason

# Of one process. With a run's length it is the longest that a build that works is not heard of.
REPORT_SECONDS = 30.0
SILENCE = 0.5  # of UNSUPPORTED_SECONDS: who heard of no build for so long starts to count anew
# The row of no saga: since when builds have been heard of without such a silence. It comes first in the order of locks.
FLEET = ("", 0, "")

_reported_at = float("-inf")

# Many processes of one build come at once: the first writes, the others find it written.
REPORT = """
INSERT INTO ledger_knownversion AS k (saga, version, build, format_from, format_to, reported_at)
SELECT g.saga, g.version, g.build, %(from)s, %(to)s, ledger_now()
FROM unnest(%(sagas)s::text[], %(versions)s::int[], %(builds)s::text[]) AS g(saga, version, build) ORDER BY 1, 2, 3
ON CONFLICT (saga, version, build) DO UPDATE SET format_from = excluded.format_from, format_to = excluded.format_to,
    reported_at = excluded.reported_at
WHERE CASE WHEN k.saga = '' THEN NOT EXISTS (SELECT 1 FROM ledger_knownversion o
        WHERE o.saga <> '' AND o.reported_at > excluded.reported_at - make_interval(secs => %(silence)s))
    ELSE k.reported_at < excluded.reported_at - make_interval(secs => %(fresh)s)
        OR (k.format_from, k.format_to) <> (excluded.format_from, excluded.format_to) END
"""

# Which kinds of jobs are queued is read off their index, one step for each; of a kind that no build knows, the jobs at its
# head. Suspects stand apart and are few. What waits and is due is ranked within seconds whatever its version, and found
# here then.
UNKNOWN = """NOT EXISTS (SELECT 1 FROM ledger_knownversion v WHERE v.saga = {job}.saga AND v.version = {job}.version
    AND {job}.checkpoint_format BETWEEN v.format_from AND v.format_to
    AND v.reported_at > (SELECT ledger_now()) - make_interval(secs => %(term)s))"""
OVERDUE = "{job}.due_at < (SELECT ledger_now()) - make_interval(secs => %(term)s)"
FOUND = f"""
WITH RECURSIVE heard AS (
    SELECT WHERE EXISTS (SELECT 1 FROM ledger_knownversion
            WHERE saga = '' AND reported_at < (SELECT ledger_now()) - make_interval(secs => %(term)s))
        AND EXISTS (SELECT 1 FROM ledger_knownversion
            WHERE saga <> '' AND reported_at > (SELECT ledger_now()) - make_interval(secs => %(silence)s))),
kinds AS (
    (SELECT lane, saga, version, checkpoint_format FROM heard, ledger_job WHERE state = 'queued' AND NOT suspect
     ORDER BY lane, saga, version, checkpoint_format LIMIT 1)
    UNION ALL
    SELECT n.* FROM kinds k CROSS JOIN LATERAL (
        SELECT lane, saga, version, checkpoint_format FROM ledger_job WHERE state = 'queued' AND NOT suspect
            AND (lane, saga, version, checkpoint_format) > (k.lane, k.saga, k.version, k.checkpoint_format)
        ORDER BY lane, saga, version, checkpoint_format LIMIT 1) n),
found AS (
    SELECT h.id FROM kinds k CROSS JOIN LATERAL (
        SELECT id, due_at FROM ledger_job WHERE state = 'queued' AND NOT suspect AND lane = k.lane AND saga = k.saga
            AND version = k.version AND checkpoint_format = k.checkpoint_format ORDER BY rank LIMIT %(limit)s) h
    WHERE {OVERDUE.format(job="h")} AND {UNKNOWN.format(job="k")}
    UNION ALL
    SELECT s.id FROM heard, ledger_job s WHERE s.state = 'queued' AND s.suspect AND {OVERDUE.format(job="s")}
        AND {UNKNOWN.format(job="s")})"""  # noqa: S608  constants of this module only
FIND = f"""{FOUND}
SELECT id FROM found WHERE id <> ALL(%(tried)s::uuid[]) ORDER BY id LIMIT %(limit)s
"""  # noqa: S608
PARK = f"""{FOUND},
picked AS MATERIALIZED (
    SELECT f.id, j.fence FROM (SELECT id FROM found WHERE %(only)s::uuid[] IS NULL OR id = ANY(%(only)s::uuid[])
        ORDER BY id LIMIT %(limit)s) f
    CROSS JOIN LATERAL (SELECT q.fence FROM ledger_job q
        WHERE q.id = f.id AND q.state = 'queued' FOR NO KEY UPDATE SKIP LOCKED) j)
UPDATE ledger_job j SET acting_fence = p.fence, fence = p.fence + 1, state = 'parked', parked_reason = %(reason)s,
    parked_detail = format('no build has known %%s version %%s with checkpoint format %%s for %%s s', j.saga, j.version,
        j.checkpoint_format, %(term)s::int), parked_at = ledger_now()
FROM picked p WHERE j.id = p.id AND j.fence = p.fence
RETURNING j.saga, j.version, j.checkpoint_format
"""  # noqa: S608


def report(known: Iterable[saga.Saga]) -> None:
    """Say what this build drives, unless this process has lately."""
    global _reported_at  # noqa: PLW0603  of this process
    if clock.monotonic() < _reported_at + REPORT_SECONDS:
        return
    keys = [FLEET, *((s.name, s.version, settings.BUILD) for s in known)]
    formats = {"from": checkpoints.READABLE[0], "to": checkpoints.READABLE[-1]}
    rows = dict(
        zip(("sagas", "versions", "builds"), map(list, zip(*keys, strict=True)), strict=True)
    )
    sql.fetch(REPORT, rows | formats | {"fresh": REPORT_SECONDS / 3, "silence": _silence()})
    _reported_at = clock.monotonic()


def park_unsupported(limit: int) -> int:
    """Park at most `limit` queued jobs that no build has known for UNSUPPORTED_SECONDS; returns how many."""
    params: dict[str, Any] = {"limit": limit, "term": settings.UNSUPPORTED_SECONDS}
    params |= {"silence": _silence(), "reason": ParkedReason.UNSUPPORTED_VERSION.value}
    parked = singly.written("unsupported", partial(_park, params), partial(_find, params))
    for (name, version, written), count in Counter(parked).items():
        said = {"saga": name, "version": version, "format": written, "count": count}
        telemetry.emit("jobs.unsupported", level="error", **said)
    return len(parked)


def _park(params: dict[str, Any], only: singly.Only) -> list[tuple[str, int, int]]:
    """Saga, version and format of each job that was parked."""
    crashpoints.reach("unsupported.before")
    parked = sql.fetch(PARK, params | {"only": only and list(only)})
    crashpoints.reach("unsupported.after")
    return parked


def _find(params: dict[str, Any], tried: Sequence[UUID]) -> list[UUID]:
    return [row[0] for row in sql.fetch(FIND, params | {"tried": list(tried)})]


def _silence() -> float:
    return float(settings.UNSUPPORTED_SECONDS * SILENCE)

"""Leases: the time-bounded right to drive a job, and where fences are born.

The invariant: two owners never overlap. Every change of who may write raises the fence, in the same statement that
checks the old one; expiry is set and compared by the database's clock. Reclaiming makes a job runnable again and never
runs it, so that there is one door into execution.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings

from ledger import crashpoints, journal, sql, telemetry
from ledger.saga import Direction

_owner = uuid4()


def _new_owner() -> None:
    global _owner  # noqa: PLW0603  a process has one identity, and a forked child another
    _owner = uuid4()


os.register_at_fork(after_in_child=_new_owner)


def become(owner_id: UUID) -> None:
    """Act as this owner from now on: for a simulation, whose drivers share one process."""
    global _owner  # noqa: PLW0603
    _owner = owner_id


def owner() -> UUID:
    """The random id of this very process: never a host name or a pid, which the next process may get again."""
    return _owner


@dataclass(frozen=True, slots=True)
class Claimed:
    id: UUID
    tenant: str
    saga: str
    version: int
    input: dict[str, Any]
    lane: str
    direction: Direction
    pivot_sent: bool
    fence: int
    seq: int
    now: datetime


COLUMNS = """j.id, t.name, j.saga, j.version, j.input, j.lane, j.direction, j.pivot_sent, j.fence, j.seq, ledger_now()"""

CLAIM = f"""
WITH picked AS MATERIALIZED (
    SELECT c.id FROM unnest(%(sagas)s::text[], %(versions)s::int[]) AS k(saga, version)
    CROSS JOIN LATERAL (
        SELECT id, rank FROM ledger_job WHERE state = 'queued' AND lane = %(lane)s AND saga = k.saga
            AND version = k.version ORDER BY rank LIMIT %(slots)s FOR NO KEY UPDATE SKIP LOCKED) c
    ORDER BY c.rank LIMIT %(slots)s),
j AS (
    UPDATE ledger_job u SET state = 'running', acting_fence = u.fence, fence = u.fence + 1, owner = %(owner)s,
        claim_token = %(token)s, lease_until = ledger_now() + make_interval(secs => %(lease)s)
    FROM picked WHERE u.id = picked.id  -- locked and queued: naming the state again would invite a scan of its index
    RETURNING u.*),
clock AS (
    UPDATE ledger_laneclock SET clock = greatest(clock, (SELECT max(rank) FROM j))
    WHERE lane = %(lane)s AND EXISTS (SELECT 1 FROM j))
SELECT {COLUMNS} FROM j JOIN ledger_tenant t ON t.id = j.tenant_id ORDER BY j.rank
"""  # noqa: S608  constants of this module only

CLAIMED_BEFORE = f"""
SELECT {COLUMNS} FROM ledger_job j JOIN ledger_tenant t ON t.id = j.tenant_id
WHERE j.state = 'running' AND j.owner = %(owner)s AND j.claim_token = %(token)s ORDER BY j.rank
"""  # noqa: S608

RENEW = """
WITH mine AS MATERIALIZED (
    SELECT g.* FROM (SELECT * FROM unnest(%(ids)s::uuid[], %(fences)s::bigint[]) AS g(id, fence) ORDER BY id) g
    CROSS JOIN LATERAL (SELECT FROM ledger_job j
        WHERE j.id = g.id AND j.fence = g.fence AND j.state = 'running' FOR NO KEY UPDATE) j)
UPDATE ledger_job j SET acting_fence = g.fence, lease_until = ledger_now() + make_interval(secs => %(lease)s)
FROM mine g WHERE j.id = g.id AND j.fence = g.fence
RETURNING j.id, j.direction
"""

END = """
WITH lost AS MATERIALIZED (
    SELECT id, fence, lease_until FROM ledger_job WHERE owner IS NOT NULL AND {which}
    ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED),
open AS (
    INSERT INTO ledger_sighting (job_id, step, direction, n, kind, outcome, evidence, fence, at)
    SELECT a.job_id, a.step, a.direction, a.n, 'sender_lost', 'unknown',
        jsonb_build_object('how', %(how)s::text, 'lease_until', lost.lease_until::text), a.fence, ledger_now()
    FROM lost JOIN ledger_attempt a ON a.job_id = lost.id AND a.fence = lost.fence
    WHERE NOT EXISTS (SELECT 1 FROM ledger_receipt r
        WHERE r.job_id = a.job_id AND r.step = a.step AND r.direction = a.direction AND r.n = a.n
            AND NOT r.evidence ? 'abandoned'))
UPDATE ledger_job j SET acting_fence = j.fence, fence = j.fence + 1, owner = NULL, lease_until = NULL,
    leases_lost = j.leases_lost + 1,
    state = CASE WHEN j.direction = 'backward' AND j.lane = 'forward' THEN 'waiting' ELSE 'queued' END,
    due_at = CASE WHEN j.direction = 'backward' AND j.lane = 'forward' THEN ledger_now() ELSE j.due_at END,
    lane = CASE WHEN j.direction = 'backward' THEN 'compensation' ELSE j.lane END
FROM lost WHERE j.id = lost.id AND j.fence = lost.fence
RETURNING j.id, j.lane
"""


def claim(lane: str, slots: int, known: Sequence[tuple[str, int]], token: UUID) -> list[Claimed]:
    """Take up to `slots` queued jobs of this lane, lowest ranks first, of the sagas and versions that are `known`.

    Repeated with the same token after a lost reply, it returns what the first call took.
    """
    crashpoints.reach("claim.before")
    rows = sql.fetch(
        CLAIM,
        {
            "sagas": [name for name, _ in known],
            "versions": [version for _, version in known],
            "lane": lane,
            "slots": slots,
            "owner": owner(),
            "token": token,
            "lease": settings.LEASE_SECONDS,
        },
    )
    crashpoints.reach("claim.after")
    return [_claimed(row) for row in rows]


def claimed_before(token: UUID) -> list[Claimed]:
    """What a claim with this token took, if its reply was lost."""
    return [_claimed(r) for r in sql.fetch(CLAIMED_BEFORE, {"owner": owner(), "token": token})]


def renew(held: Sequence[tuple[UUID, int]]) -> dict[UUID, Direction]:
    """Extend these leases (job, fence) by a whole term. A job that does not come back is lost."""
    crashpoints.reach("renew.before")
    rows = sql.fetch(
        RENEW,
        {
            "ids": [job for job, _ in held],
            "fences": [fence for _, fence in held],
            "lease": settings.LEASE_SECONDS,
        },
    )
    crashpoints.reach("renew.after")
    return {row[0]: Direction(row[1]) for row in rows}


def reclaim(limit: int) -> dict[str, int]:
    """End leases that have expired: at most `limit`. Returns how many jobs each lane got back. Joins the caller's
    transaction.
    """
    crashpoints.reach("reclaim.before")
    return _end("lease_until < (SELECT ledger_now())", {"limit": limit, "how": "lease_expired"})


def end_owner(lost: UUID, limit: int = 1_000) -> dict[str, int]:
    """End the leases of a process that is known to be dead."""
    return _end("owner = %(owner)s", {"limit": limit, "how": "owner_dead", "owner": lost})


def _end(which: str, params: dict[str, Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for _, lane in sql.fetch(END.format(which=which), params):
        counts[lane] = counts.get(lane, 0) + 1
    for lane, count in counts.items():
        telemetry.leases_recovered.labels(how=params["how"]).inc(count)
        telemetry.emit("jobs.reclaimed", lane=lane, count=count, reason=params["how"])
    return counts


def _claimed(row: Any) -> Claimed:
    job, tenant, saga, version, stored, lane, direction, pivot_sent, fence, seq, now = row
    return Claimed(
        job,
        tenant,
        saga,
        version,
        journal.as_json(stored),
        lane,
        Direction(direction),
        pivot_sent,
        fence,
        seq,
        now,
    )

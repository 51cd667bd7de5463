"""Leases: the time-bounded right to drive a job, and where fences are born.

The invariant: two owners never overlap. Every change of who may write raises the fence, in the same statement that
checks the old one; expiry is set and compared by the database's clock. Reclaiming makes a job runnable again and never
runs it, so that there is one door into execution.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from django.conf import settings
from django.db import transaction

from ledger import checkpoints, crashpoints, journal, shares, sql, telemetry
from ledger.saga import Direction
from ledger.states import JobState

# Poison: losses without a receipt in between that make a suspect (the first is forgiven), and losses alone that park.
SUSPECT_LOSSES = 2
STRIKES_MAX = 3
POISON = {"losses": SUSPECT_LOSSES, "strikes": STRIKES_MAX}
SUSPECTS_EVERY = 4  # at most one process in so many drives a suspect: it may not kill them all

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


class Lease(NamedTuple):
    """What an owner knows of its right to a job. `token` is of the claim: after a failover that lost the newest commits a
    fence may be given out again, and a job be where it was before.
    """

    job_id: UUID
    fence: int
    token: UUID
    seq: int


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
    suspect: bool
    token: UUID
    now: datetime

    @property
    def lease(self) -> Lease:
        return Lease(self.id, self.fence, self.token, self.seq)


COLUMNS = """j.id, t.name, j.saga, j.version, j.input, j.lane, j.direction, j.pivot_sent, j.fence, j.seq,
    j.suspect, j.claim_token, ledger_now()"""

PICK = """
    SELECT c.id FROM unnest(%(sagas)s::text[], %(versions)s::int[]) AS k(saga, version)
    CROSS JOIN unnest(%(formats)s::int[]) AS f(format)
    CROSS JOIN LATERAL (
        SELECT id, rank FROM ledger_job WHERE state = 'queued' AND NOT suspect AND lane = %(lane)s AND saga = k.saga
            AND version = k.version AND checkpoint_format = f.format
        ORDER BY rank LIMIT %(slots)s FOR NO KEY UPDATE SKIP LOCKED) c
    ORDER BY c.rank LIMIT %(slots)s"""
KNOWN_SUSPECT = """state = 'queued' AND suspect AND lane = %(lane)s AND checkpoint_format = ANY(%(formats)s::int[])
    AND (saga, version) IN (SELECT * FROM unnest(%(sagas)s::text[], %(versions)s::int[]))"""
# One process in four, by those that have work now and this one; or one, where they are fewer.
HAS_ROOM = """SELECT (count(*) FILTER (WHERE suspect) + 1) * %(every)s
        <= greatest(%(every)s, count(DISTINCT owner) FILTER (WHERE owner <> %(owner)s) + 1)
    FROM ledger_job WHERE owner IS NOT NULL"""
PICK_SUSPECT = f"""
    SELECT id FROM ledger_job WHERE {KNOWN_SUSPECT} AND ({HAS_ROOM})
    ORDER BY rank LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED"""  # noqa: S608
HAS_SUSPECT = f"SELECT 1 FROM ledger_job WHERE {KNOWN_SUSPECT} LIMIT 1"  # noqa: S608
# Whoever counts does so alone: all that come back after a crash come at the same moment.
COUNTS_ALONE = "SELECT pg_try_advisory_xact_lock(%s, hashtext('suspects'))"

CLAIM = """
WITH picked AS MATERIALIZED ({pick}),
j AS (
    UPDATE ledger_job u SET state = 'running', acting_fence = u.fence, fence = u.fence + 1, owner = %(owner)s,
        claim_token = %(token)s, lease_until = ledger_now() + make_interval(secs => %(lease)s)
    FROM picked WHERE u.id = picked.id  -- locked and queued: naming the state again would invite a scan of its index
    RETURNING u.*),
clock AS (
    UPDATE ledger_laneclock SET clock = greatest(clock, (SELECT max(rank) FROM j))
    WHERE lane = %(lane)s AND EXISTS (SELECT 1 FROM j))
SELECT {columns} FROM j JOIN ledger_tenant t ON t.id = j.tenant_id ORDER BY j.rank
"""

CLAIMED_BEFORE = f"""
SELECT {COLUMNS} FROM ledger_job j JOIN ledger_tenant t ON t.id = j.tenant_id
WHERE j.state = 'running' AND j.owner = %(owner)s AND j.claim_token = %(token)s ORDER BY j.rank
"""  # noqa: S608

RENEW = """
WITH mine AS MATERIALIZED (
    SELECT g.* FROM (SELECT * FROM unnest(%(ids)s::uuid[], %(fences)s::bigint[], %(tokens)s::uuid[], %(seqs)s::bigint[])
        AS g(id, fence, token, seq) ORDER BY id) g
    -- A row that is behind what its owner has stored is one of which the newest commits were lost.
    CROSS JOIN LATERAL (SELECT FROM ledger_job j WHERE j.id = g.id AND j.fence = g.fence AND j.claim_token = g.token
        AND j.seq >= g.seq AND j.state = 'running' FOR NO KEY UPDATE) j)
UPDATE ledger_job j SET acting_fence = g.fence, lease_until = ledger_now() + make_interval(secs => %(lease)s)
FROM mine g WHERE j.id = g.id AND j.fence = g.fence
RETURNING j.id, j.direction
"""

END = """
WITH lost AS MATERIALIZED (
    SELECT id, fence, lease_until, owner, direction = 'backward' AND lane = 'forward' AS changes_lane
    FROM ledger_job WHERE owner IS NOT NULL AND {which} ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED),
-- Whoever died or hung with several jobs in hand accuses none of them yet: only a loss while alone is a strike.
judged AS (
    SELECT l.*, l.alone AND j.strikes + 1 >= %(strikes)s AS parks
    FROM (SELECT lost.*, (SELECT count(*) FROM ledger_job o WHERE o.owner = lost.owner) = 1 AS alone FROM lost) l
    JOIN ledger_job j ON j.id = l.id),
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
    strikes = j.strikes + g.alone::int, losses = j.losses + (NOT g.alone)::int,
    suspect = j.suspect OR j.strikes + j.losses + 1 >= %(losses)s,
    state = CASE WHEN g.parks THEN 'parked' WHEN g.changes_lane THEN 'waiting' ELSE 'queued' END,
    due_at = CASE WHEN g.changes_lane AND NOT g.parks THEN ledger_now() ELSE j.due_at END,
    lane = CASE WHEN j.direction = 'backward' THEN 'compensation' ELSE j.lane END,
    parked_reason = CASE WHEN g.parks THEN 'worker_lost' ELSE '' END,
    parked_detail = CASE WHEN g.parks THEN format('its process was lost %%s times while it drove nothing else',
        j.strikes + 1) ELSE '' END,
    parked_at = CASE WHEN g.parks THEN ledger_now() END
FROM judged g WHERE j.id = g.id AND j.fence = g.fence
RETURNING j.id, j.lane, j.state
"""


def claim(
    lane: str, slots: int, known: Sequence[tuple[str, int]], token: UUID, *, suspect: bool = False
) -> list[Claimed]:
    """Take up to `slots` queued jobs of this lane, lowest ranks first, of the sagas and versions that are `known` and
    with checkpoints that this build reads; or one `suspect`, which must be driven alone.

    Repeated with the same token after a lost reply, it returns what the first call took.
    """
    mine = {"slots": slots, "token": token, "lease": settings.LEASE_SECONDS}
    params = _claimable(lane, known) | mine
    crashpoints.reach("claim.before")
    rows = _claim_suspect(params) if suspect else sql.fetch(_claiming(PICK), params)
    crashpoints.reach("claim.after")
    return [_claimed(row) for row in rows]


def _claim_suspect(params: dict[str, Any]) -> list[Any]:
    with transaction.atomic(durable=True):
        counts = sql.fetch(COUNTS_ALONE, [shares.ADVISORY_CLASS])[0][0]
        return sql.fetch(_claiming(PICK_SUSPECT), params) if counts else []


def _claiming(pick: str) -> str:
    return CLAIM.format(pick=pick, columns=COLUMNS)


def has_suspect(lane: str, known: Sequence[tuple[str, int]]) -> bool:
    """Whether a suspect waits that this build may take now."""
    params = _claimable(lane, known)
    return bool(sql.fetch(HAS_SUSPECT, params)) and bool(sql.fetch(HAS_ROOM, params)[0][0])


def _claimable(lane: str, known: Sequence[tuple[str, int]]) -> dict[str, Any]:
    return {
        "lane": lane,
        "sagas": [name for name, _ in known],
        "versions": [version for _, version in known],
        "formats": list(checkpoints.READABLE),
        "owner": owner(),
        "every": SUSPECTS_EVERY,
    }


def claimed_before(token: UUID) -> list[Claimed]:
    """What a claim with this token took, if its reply was lost."""
    return [_claimed(r) for r in sql.fetch(CLAIMED_BEFORE, {"owner": owner(), "token": token})]


def renew(held: Sequence[Lease]) -> dict[UUID, Direction]:
    """Extend these leases by a whole term. A job that does not come back is lost."""
    crashpoints.reach("renew.before")
    rows = sql.fetch(
        RENEW,
        {
            "ids": [mine.job_id for mine in held],
            "fences": [mine.fence for mine in held],
            "tokens": [mine.token for mine in held],
            "seqs": [mine.seq for mine in held],
            "lease": settings.LEASE_SECONDS,
        },
    )
    crashpoints.reach("renew.after")
    return {row[0]: Direction(row[1]) for row in rows}


EXPIRED = "lease_until < (SELECT ledger_now())"


def reclaim(limit: int, only: Sequence[UUID] | None = None) -> dict[str, int]:
    """End leases that have expired: at most `limit`, of these jobs. Returns how many jobs each lane got back. Joins the
    caller's transaction.
    """
    crashpoints.reach("reclaim.before")
    which = EXPIRED if only is None else f"{EXPIRED} AND id = ANY(%(only)s::uuid[])"
    return _end(which, {"limit": limit, "how": "lease_expired", "only": list(only or ())})


def expired(limit: int, but: Sequence[UUID]) -> list[UUID]:
    """At most so many jobs whose leases have expired, without these."""
    query = f"SELECT id FROM ledger_job WHERE owner IS NOT NULL AND {EXPIRED} AND id <> ALL(%s::uuid[]) LIMIT %s"  # noqa: S608
    return [row[0] for row in sql.fetch(query, [list(but), limit])]


def end_owner(lost: UUID, limit: int = 1_000) -> dict[str, int]:
    """End the leases of a process that is known to be dead."""
    return _end("owner = %(owner)s", {"limit": limit, "how": "owner_dead", "owner": lost})


def _end(which: str, params: dict[str, Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for job, lane, state in sql.fetch(END.format(which=which), POISON | params):
        counts[lane] = counts.get(lane, 0) + (state != JobState.PARKED)
        if state == JobState.PARKED:  # its lane is rung too: others have waited for its end
            telemetry.emit("job.poisoned", level="error", job=str(job), lane=lane)
    for lane, count in ((lane, count) for lane, count in counts.items() if count):
        telemetry.leases_recovered.labels(how=params["how"]).inc(count)
        telemetry.emit("jobs.reclaimed", lane=lane, count=count, reason=params["how"])
    return counts


def _claimed(row: Any) -> Claimed:
    job, tenant, saga, version, stored, lane, direction, *rest = row
    input_ = journal.as_json(stored)
    return Claimed(job, tenant, saga, version, input_, lane, Direction(direction), *rest)

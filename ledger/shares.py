"""Fair order: promotion stamps ranks on due jobs, tenant by tenant, so that no tenant's storm holds up another.

Weighted fair queueing: rank = greatest(tenant's tail, lane's virtual clock) + cost / weight, advancing the tail; the
clock is the greatest rank ever claimed in the lane, so that an idle tenant gains no credit. Ranks are stamped here and
not inside submit, where sixteen parallel connections would get many times the share of one.

A tenant may have a cap on its running jobs: what is over it stays `waiting`, out of sight of the claims, until others of
its jobs have ended. Then the due jobs are read tenant by tenant, so that a backlog over its cap is not read at all. The cap
binds the forward lane: what has to be undone never waits for what is being done.

Promotion is one of the two writers that take no authority: it moves `waiting` to `queued` and leaves fence and seq alone.
So does `hasten`, which only lets the due time of a waiting job come sooner: whoever plans too early waits again.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import OperationalError, transaction

from ledger import crashpoints, singly, sql
from ledger.states import JOB_LANES, Lane

BATCH = 2_000
BATCHES_MAX = 50
PART = 20  # where tenants have caps, one of them is read no further than to this part of a batch
ADVISORY_CLASS = 0x616D  # this project's own class of advisory locks: "am"

DUE = """
SELECT 1 FROM ledger_job WHERE state = 'waiting' AND lane = %s AND due_at <= (SELECT ledger_now()) LIMIT 1
"""

CAPPED = "SELECT 1 FROM ledger_tenant WHERE running_cap IS NOT NULL LIMIT 1"

# What each tenant's cap leaves: jobs that are running and those that are queued count.
ROOM = """
WITH running AS MATERIALIZED (
    SELECT tenant_id, count(*) AS jobs FROM ledger_job WHERE owner IS NOT NULL AND lane = %(lane)s GROUP BY tenant_id),
room AS MATERIALIZED (
    SELECT t.id, CASE WHEN t.running_cap IS NULL THEN %(each)s ELSE least(%(each)s, greatest(0,
        t.running_cap - coalesce(r.jobs, 0) - (SELECT count(*) FROM ledger_job q
            WHERE q.tenant_id = t.id AND q.lane = %(lane)s AND q.state = 'queued'))) END AS jobs
    FROM ledger_tenant t LEFT JOIN running r ON r.tenant_id = t.id)"""

DUE_UNDER_CAPS = f"""{ROOM}
SELECT 1 FROM room WHERE jobs > 0 AND EXISTS (SELECT 1 FROM ledger_job
    WHERE tenant_id = room.id AND lane = %(lane)s AND state = 'waiting' AND due_at <= (SELECT ledger_now())) LIMIT 1
"""  # noqa: S608  constants of this module only

RANK = """,
ranked AS (
    SELECT d.id, d.tenant_id, greatest(coalesce(s.tail, 0), coalesce(c.clock, 0))
        + sum(d.cost / t.weight) OVER (PARTITION BY d.tenant_id ORDER BY d.due_at, d.id) AS rank
    FROM due d JOIN ledger_tenant t ON t.id = d.tenant_id
    LEFT JOIN ledger_share s ON s.tenant_id = d.tenant_id AND s.lane = %(lane)s
    LEFT JOIN ledger_laneclock c ON c.lane = %(lane)s),
tails AS (
    INSERT INTO ledger_share (tenant_id, lane, tail) SELECT tenant_id, %(lane)s, max(rank) FROM ranked GROUP BY tenant_id
    ON CONFLICT ON CONSTRAINT ledger_share_once DO UPDATE SET tail = excluded.tail),
moved AS (
    UPDATE ledger_job j SET state = 'queued', rank = ranked.rank, acting_fence = j.fence
    FROM ranked WHERE j.id = ranked.id RETURNING 1)  -- locked and waiting
SELECT 1 FROM moved
"""

PROMOTE = f"""
WITH due AS MATERIALIZED (
    SELECT id, tenant_id, cost, due_at FROM ledger_job
    WHERE state = 'waiting' AND lane = %(lane)s AND due_at <= (SELECT ledger_now()) {{only}}
    ORDER BY due_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED){RANK}"""  # noqa: S608

PROMOTE_UNDER_CAPS = f"""{ROOM},
due AS MATERIALIZED (
    SELECT d.* FROM room CROSS JOIN LATERAL (
        SELECT id, tenant_id, cost, due_at FROM ledger_job
        WHERE tenant_id = room.id AND lane = %(lane)s AND state = 'waiting' AND due_at <= (SELECT ledger_now()) {{only}}
        ORDER BY due_at LIMIT room.jobs FOR NO KEY UPDATE SKIP LOCKED) d
    ORDER BY d.due_at LIMIT %(limit)s){RANK}"""  # noqa: S608

DUE_IDS = """
SELECT id FROM ledger_job WHERE state = 'waiting' AND lane = %s AND due_at <= (SELECT ledger_now())
    AND id <> ALL(%s::uuid[]) ORDER BY due_at LIMIT %s
"""


SOON = """
WITH soon AS MATERIALIZED (
    SELECT id FROM ledger_job WHERE state = 'waiting' AND lane = %(lane)s AND saga = ANY(%(sagas)s)
        AND due_at > %(now)s AND due_at <= %(now)s + %(within)s
    ORDER BY due_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE ledger_job j SET acting_fence = j.fence, due_at = %(now)s FROM soon WHERE j.id = soon.id RETURNING 1
"""


def hasten(sagas: Sequence[str], within: timedelta) -> Counter[str]:
    """Let the waiting jobs of these sagas that would come due within that time come due now; how many of each lane."""
    found: Counter[str] = Counter()
    asked: dict[str, Any] = {"sagas": list(sagas), "within": within, "limit": BATCH}
    asked["now"] = sql.fetch("SELECT ledger_now()")[0][0]
    for lane in JOB_LANES:
        for _ in range(BATCHES_MAX):  # those that are put off again meanwhile would keep it going
            hastened = len(sql.fetch(SOON, asked | {"lane": lane}))
            found[lane] += hastened
            if hastened < BATCH:
                break
    return +found


def promote(lane: str, limit: int = BATCH) -> int:
    """Rank up to `limit` due jobs of a lane; returns how many. Single-flight, with a bounded wait and not a skip: a run
    that skipped could miss its own job.
    """
    if not sql.fetch(DUE, [lane]):
        return 0
    asked = {"lane": lane, "limit": limit, "each": max(1, limit // PART)}
    under_caps = is_capped(lane)
    if under_caps and not sql.fetch(DUE_UNDER_CAPS, asked):
        return 0
    rank = partial(_rank, PROMOTE_UNDER_CAPS if under_caps else PROMOTE, asked)
    try:
        ranked = singly.written("promote", rank, partial(_due, lane, limit))
    except OperationalError as error:
        if sql.state_of(error) != "55P03":
            raise
        return 0  # somebody promotes at this moment, and for long: what is ranked can be claimed already
    return len(ranked)


def is_capped(lane: str) -> bool:
    """Whether the lane is one that caps bind, and any tenant has one."""
    return lane == Lane.FORWARD and bool(sql.fetch(CAPPED))


def _rank(promote_: str, asked: dict[str, Any], only: singly.Only) -> list[tuple[int]]:
    """A row for each job that was ranked."""
    statement = promote_.format(only="" if only is None else "AND id = ANY(%(only)s::uuid[])")
    crashpoints.reach("promote.before")
    with transaction.atomic(durable=True):
        sql.fetch(f"SET LOCAL lock_timeout = '{int(settings.LEASE_SECONDS * 100)}ms'")
        sql.fetch("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [ADVISORY_CLASS, asked["lane"]])
        ranked = sql.fetch(statement, asked | {"only": list(only or ())})
    crashpoints.reach("promote.after")
    return ranked


def _due(lane: str, limit: int, tried: Sequence[UUID]) -> list[UUID]:
    return [row[0] for row in sql.fetch(DUE_IDS, [lane, list(tried), limit])]

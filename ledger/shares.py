"""Fair order: promotion stamps ranks on due jobs, tenant by tenant, so that no tenant's storm holds up another.

Weighted fair queueing: rank = greatest(tenant's tail, lane's virtual clock) + cost / weight, advancing the tail; the
clock is the greatest rank ever claimed in the lane, so that an idle tenant gains no credit. Ranks are stamped here and
not inside submit, where sixteen parallel connections would get many times the share of one.

Promotion is one of the two writers that take no authority: it moves `waiting` to `queued` and leaves fence and seq alone.
"""

from django.conf import settings
from django.db import OperationalError, transaction

from ledger import crashpoints, sql

BATCH = 2_000
ADVISORY_CLASS = 0x616D  # this project's own class of advisory locks: "am"

DUE = """
SELECT 1 FROM ledger_job WHERE state = 'waiting' AND lane = %s AND due_at <= (SELECT ledger_now()) LIMIT 1
"""

PROMOTE = """
WITH due AS MATERIALIZED (
    SELECT id, tenant_id, cost, due_at FROM ledger_job
    WHERE state = 'waiting' AND lane = %(lane)s AND due_at <= (SELECT ledger_now())
    ORDER BY due_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED),
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
SELECT count(*) FROM moved
"""


def promote(lane: str, limit: int = BATCH) -> int:
    """Rank up to `limit` due jobs of a lane; returns how many. Single-flight, with a bounded wait and not a skip: a run
    that skipped could miss its own job.
    """
    if not sql.fetch(DUE, [lane]):
        return 0
    crashpoints.reach("promote.before")
    try:
        with transaction.atomic(durable=True):
            sql.fetch(f"SET LOCAL lock_timeout = '{int(settings.LEASE_SECONDS * 100)}ms'")
            sql.fetch("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [ADVISORY_CLASS, lane])
            count: int = sql.fetch(PROMOTE, {"lane": lane, "limit": limit})[0][0]
    except OperationalError as error:
        if sql.state_of(error) != "55P03":
            raise
        return 0  # somebody promotes at this moment, and for long: what is ranked can be claimed already
    crashpoints.reach("promote.after")
    return count

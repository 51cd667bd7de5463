"""What runs every few seconds looks at the jobs that it is for, not at all that ever ended or wait in a queue."""

import re
from typing import Any

import pytest
from django.db import connection

from ledger import leases, selectors, shares, turns
from tests import factories, psql

pytestmark = pytest.mark.usefixtures("worker_role")

JOBS = 30_000
LOOKED_AT_MAX = 10
PAST = turns.TURN.format(which=turns.PAST_DEADLINE, skip="SKIP LOCKED")
EXPIRED = leases.END.format(which=leases.EXPIRED)
FILL = """
INSERT INTO ledger_job (id, tenant_id, saga, version, input, lane, state, rank, deadline_at, finished_at)
SELECT uuidv7(), %s, 'test', 1, '{}', 'forward', CASE WHEN is_queued THEN 'queued' ELSE 'confirmed' END, n,
    now() + interval '1 day', CASE WHEN NOT is_queued THEN now() END
FROM generate_series(1, %s) n, LATERAL (SELECT n %% 3 = 0) q (is_queued)
"""
AN_HOUR_AGO = (
    "UPDATE ledger_job SET acting_fence = fence, finished_at = finished_at - interval '1 hour'"
)


@pytest.fixture
def many(worker_role: None) -> None:
    tenant = factories.TenantFactory.create()
    with psql.connected() as owner:
        owner.execute(FILL, [tenant.id, JOBS])
        owner.execute("ANALYZE ledger_job")


def looked_at(statement: str, params: Any) -> int:
    """How many rows of any table this statement read in vain."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE) {statement}", params)
        plan = "\n".join(row[0] for row in cursor.fetchall())
    return sum(int(n) for n in re.findall(r"Rows Removed by Filter: (\d+)", plan))


@pytest.mark.parametrize(
    ("statement", "params"),
    [
        (PAST, {"limit": 5, "by": "deadline", "reason": "passed"}),
        (EXPIRED, leases.POISON | {"limit": 5, "how": "lease_expired"}),
        (selectors.OLDEST, []),
        (selectors.OLDEST_UNDER_CAPS, {"lane": "forward", "each": 1}),
        (shares.DUE, ["forward"]),
        (shares.DUE, ["compensation"]),
        (shares.PROMOTE.format(only=""), {"lane": "forward", "limit": 5}),
    ],
    ids=[
        "deadlines",
        "reclaim",
        "oldest",
        "oldest under caps",
        "due",
        "due in an idle lane",
        "promote",
    ],
)
def test_other_jobs_are_not_read(many: None, statement: str, params: Any) -> None:
    assert looked_at(statement, params) <= LOOKED_AT_MAX


def test_of_ended_jobs_a_scrape_reads_the_recent(many: None) -> None:
    undone = selectors.UNDONE, [selectors.RECENT_SECONDS, selectors.TENANTS_SHOWN]
    assert looked_at(*undone) > LOOKED_AT_MAX  # all of them ended this moment
    with psql.connected() as owner:
        owner.execute(AN_HOUR_AGO)
        owner.execute("ANALYZE ledger_job")
    assert looked_at(*undone) <= LOOKED_AT_MAX


def test_the_control_reads_them_all(many: None) -> None:
    assert looked_at("SELECT 1 FROM ledger_job WHERE parked_reason = 'conflict'", []) == JOBS

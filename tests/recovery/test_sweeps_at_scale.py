"""With a million jobs, nearly all of them ended, no statement of a sweep reads a big table, and an idle system stays idle.

The rows are made in bulk as no application can: without triggers. Plans are taken from the sweeps' own statements, as they
are sent, each explained where it ran and rolled back.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections
from pytest_django import DjangoDbBlocker
from pytest_django.fixtures import Settings

from ledger import leases, retention, selectors, watch
from ledger.watch import Swept
from recovery import sweeps
from tests import conftest, psql

pytestmark = [pytest.mark.timeout(300)]
JOBS, LIVE = 1_000_000, 2_000
BIG = ("ledger_job", "ledger_attempt", "ledger_receipt", "ledger_sighting", "ledger_submission")
BUFFERS_MAX = (
    40_000  # of a whole batch of 500 jobs with its writes; the table alone has far more pages
)
MAKE = """
SET session_replication_role = replica;
INSERT INTO ledger_tenant (name) SELECT 'tenant-' || n FROM generate_series(1, 100) n;
WITH t AS (SELECT array_agg(id) AS ids FROM ledger_tenant)
INSERT INTO ledger_job (tenant_id, saga, version, input, lane, state, direction, fence, seq, owner, lease_until, due_at,
    rank, deadline_at, parked_reason, parked_detail, parked_at, created_at, finished_at)
SELECT t.ids[1 + n %% 100], 'scale', 1, '{}', 'forward', state, 'forward', 3, 5,
    CASE state WHEN 'running' THEN gen_random_uuid() END,
    CASE state WHEN 'running' THEN ledger_now() + CASE WHEN n %% 10 = 0 THEN interval '-1 s' ELSE interval '1 h' END END,
    ledger_now() + CASE WHEN n %% 2 = 0 THEN interval '-1 s' ELSE interval '1 h' END, n,
    CASE WHEN n %% 2 = 0 THEN ledger_now() + interval '1 h' * (n %% 3 - 1) END,
    CASE state WHEN 'parked' THEN 'unknown_outcome' ELSE '' END, 'scale', CASE state WHEN 'parked' THEN ledger_now() END,
    ledger_now() - interval '3 days', CASE state WHEN 'confirmed' THEN ledger_now() - interval '1 day' * (n %% 3) END
FROM t, generate_series(1, %(jobs)s) n CROSS JOIN LATERAL (SELECT CASE
    WHEN n <= %(live)s THEN 'queued' WHEN n <= 2 * %(live)s THEN 'waiting' WHEN n <= 3 * %(live)s THEN 'running'
    WHEN n <= 4 * %(live)s THEN 'parked' ELSE 'confirmed' END AS state) s;
INSERT INTO ledger_sighting (job_id, step, direction, n, kind, outcome, evidence, at)
SELECT id, 'room', 'forward', 1, 'late', 'confirmed', '{}', ledger_now() - interval '8 days' FROM ledger_job LIMIT 50000;
INSERT INTO ledger_sighting (job_id, step, direction, n, kind, outcome, evidence, at)
SELECT id, 'room', 'forward', 1, 'late', 'confirmed', '{}', ledger_now() FROM ledger_job
WHERE state IN ('parked', 'confirmed') LIMIT %(live)s;
INSERT INTO ledger_attempt (job_id, seq, fence, step, direction, n, arguments, fingerprint, at)
SELECT id, 1, 1, 'room', 'forward', 1, '{}', '', created_at FROM ledger_job LIMIT 50000;
INSERT INTO ledger_receipt (job_id, seq, fence, step, direction, n, outcome, evidence, at)
SELECT id, 1, 1, 'room', 'forward', 1, 'confirmed', '{}', created_at FROM ledger_job LIMIT 50000;
INSERT INTO ledger_submission (tenant_id, key, fingerprint, request, job_id, created_at)
SELECT tenant_id, id::text, '', '{}', id, created_at FROM ledger_job LIMIT 50000;
SET session_replication_role = origin;
"""


@pytest.fixture(scope="module")
def million(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock():
        conftest.empty()
        make(JOBS, LIVE)
        yield
        with connection.cursor() as cursor:  # by DELETE it would take a minute
            names = ", ".join(BIG)
            cursor.execute(f"SET session_replication_role = replica; TRUNCATE {names} CASCADE")
        conftest.empty()
        connections.close_all()


def make(jobs: int, live: int) -> None:
    with psql.connected() as owner:
        owner.execute("SET statement_timeout = 0")
        owner.execute(
            MAKE.replace("%(jobs)s", str(jobs)).replace("%(live)s", str(live)).replace("%%", "%")
        )
        owner.execute("VACUUM ANALYZE")


@dataclass
class Plans:
    """Explains whatever statement of ours comes by, where it runs, and takes its effects back before it does."""

    statements: int = 0
    buffers: int = 0
    scans: list[str] = field(default_factory=list)

    def __call__(
        self, execute: Callable[..., Any], query: str, params: Any, many: bool, context: Any
    ) -> Any:
        self.statements += 1
        if "ledger_" in query:
            self._take(self._explain(query, params))
        return execute(query, params, many, context)

    def _explain(self, query: str, params: Any) -> dict[str, Any]:
        raw = context_of_transaction()
        begin, back = (
            ("SAVEPOINT plans", "ROLLBACK TO plans")
            if connection.in_atomic_block
            else ("BEGIN", "ROLLBACK")
        )
        raw.execute(begin)
        row = raw.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", params or None
        ).fetchone()
        raw.execute(back)
        found = row[0] if isinstance(row[0], list) else json.loads(row[0])
        return dict(found[0]["Plan"])

    def _take(self, plan: dict[str, Any]) -> None:
        self.buffers = max(self.buffers, plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        for node in nodes(plan):
            if node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG:
                self.scans.append(f"{node['Relation Name']}: {node.get('Filter', '')}")


def context_of_transaction() -> Any:
    """The driver's own connection: what is explained must not be explained again."""
    connection.ensure_connection()
    return connection.connection


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def plans_of(sweep: Callable[[], Any], role: str = "worker") -> Plans:
    plans = Plans()
    with conftest.role(role):
        with connection.cursor() as cursor:
            cursor.execute("SET random_page_cost = 1.1")  # as every worker has it
        with connection.execute_wrapper(plans):
            sweep()
    return plans


ALL = (
    sweeps.reclaim,
    sweeps.expire_deadlines,
    sweeps.park_overdue,
    sweeps.park_unsupported,
    sweeps.reconcile,
    sweeps.promote,
    sweeps.ring,
)
LOOKS = (
    selectors.open_jobs,
    selectors.oldest_runnable_seconds,
    watch.passes,
    lambda: leases.expired(500, []),
)


@pytest.mark.usefixtures("million")
@pytest.mark.parametrize("sweep", ALL, ids=lambda sweep: sweep.__name__)
def test_no_statement_of_a_sweep_reads_a_big_table(sweep: Callable[[], Swept]) -> None:
    plans = plans_of(sweep)
    assert plans.scans == []
    assert 0 < plans.buffers <= BUFFERS_MAX


@pytest.mark.usefixtures("million")
@pytest.mark.parametrize("look", LOOKS, ids=["open_jobs", "oldest", "passes", "expired"])
def test_no_scrape_reads_a_big_table(look: Callable[[], object]) -> None:
    plans = plans_of(look)
    assert plans.scans == []
    assert plans.buffers <= BUFFERS_MAX


@pytest.mark.usefixtures("million")
def test_retention_reads_no_big_table_whether_it_finds_anything_or_not() -> None:
    for days, most in ((1, BUFFERS_MAX), (9, 100)):
        plans = plans_of(partial(retention.retain, timedelta(days=days)), "retention")
        assert plans.scans == []
        assert 0 < plans.buffers <= most


@pytest.mark.usefixtures("million")
def test_a_scan_is_seen_where_there_is_one() -> None:
    """Control."""
    plans = plans_of(
        lambda: connection.cursor().execute("SELECT count(*) FROM ledger_job WHERE input = '{}'")
    )
    assert [scan.partition(":")[0] for scan in plans.scans] == ["ledger_job"]


@pytest.mark.usefixtures("database")
def test_an_idle_system_asks_as_much_with_ten_thousand_ended_jobs_as_with_none(
    settings: Settings,
) -> None:
    settings.RETENTION_DAYS = 9

    def one_pass() -> Plans:
        return plans_of(lambda: [sweep() for sweep in (*ALL, sweeps.retain)])

    fresh = one_pass()
    make(10_000, 0)
    later = one_pass()
    assert later.statements == fresh.statements <= 40
    assert later.buffers <= fresh.buffers + 20

"""The journal is append-only, takes rows only under the current fence and seq, one final receipt an operation, and no
undo for more than was confirmed; a sighting needs no fence.
"""

import json
from typing import Any

import psycopg
import pytest

from ledger import journal, leases
from ledger.guards import APPEND_ONLY, JOURNAL
from tests import claims, psql, sagas

pytestmark = pytest.mark.usefixtures("database")

INSERTS = {
    "attempt": "(job_id, seq, fence, step, direction, n, arguments, fingerprint)"
    " VALUES (%s, %s, %s, 'payment', 'forward', 1, '{}', '\\x00')",
    "receipt": "(job_id, seq, fence, step, direction, n, outcome, evidence)"
    " VALUES (%s, %s, %s, 'payment', 'forward', 1, 'confirmed', '{}')",
    "checkpoint": "(job_id, seq, fence, data) VALUES (%s, %s, %s, '{}')",
    "resolution": "(job_id, seq, fence, step, direction, act, decided_by, reason, evidence)"
    " VALUES (%s, %s, %s, 'payment', 'forward', 'note', 'ann', 'looked', '{}')",
}
SIGHTING = """
INSERT INTO ledger_sighting (job_id, step, direction, n, kind, outcome, evidence, fence)
VALUES (%s, 'payment', 'forward', 1, 'webhook', 'confirmed', '{}', %s)
"""
ROLES = ["owner", "worker", "api"]


def insert(
    session: psycopg.Connection[Any], table: str, job: leases.Claimed, seq: int, fence: int
) -> None:
    session.execute(f"INSERT INTO ledger_{table} {INSERTS[table]}", [job.id, seq, fence])


@pytest.fixture
def job() -> leases.Claimed:
    with sagas.trip(sagas.World()) as trip:
        return claims.running(trip)


@pytest.fixture
def full(job: leases.Claimed) -> leases.Claimed:
    """A job with one row in each table of the journal."""
    with psql.connected() as owner:
        for table in JOURNAL:
            insert(owner, table, job, job.seq, job.fence)
        owner.execute(SIGHTING, [job.id, None])
    return job


@pytest.mark.parametrize("table", APPEND_ONLY)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_{0} SET at = at",
        "DELETE FROM ledger_{0}",
        "TRUNCATE ledger_{0}",
        "TRUNCATE ledger_{0} CASCADE",
    ],
)
def test_no_row_is_changed_or_removed(full: leases.Claimed, table: str, statement: str) -> None:
    before = claims.rows(full.id)
    assert before[table] == 1
    for role in ("worker", "api"):
        with psql.connected(role) as session:
            assert psql.refusal(session, statement.format(table)) == ("42501", "")
    with psql.connected() as owner:
        assert psql.refusal(owner, statement.format(table)) == ("P0001", "ledger_append_only")
    assert claims.rows(full.id) == before


@pytest.mark.parametrize("table", JOURNAL)
@pytest.mark.parametrize(("seq", "fence"), [(0, -1), (0, 1), (1, 0), (-1, 0)])
def test_a_row_under_another_fence_or_seq_is_refused(
    job: leases.Claimed, table: str, seq: int, fence: int
) -> None:
    before = claims.rows(job.id)
    for role in ROLES:
        with (
            psql.connected(role) as session,
            pytest.raises(psycopg.errors.RaiseException) as refused,
        ):
            insert(session, table, job, job.seq + seq, job.fence + fence)
        assert refused.value.diag.constraint_name == "ledger_journal_fence"
    assert claims.rows(job.id) == before


@pytest.mark.parametrize("role", ROLES)
def test_a_row_under_the_current_fence_and_seq_is_taken(job: leases.Claimed, role: str) -> None:
    with psql.connected(role) as session:
        for table in JOURNAL:
            insert(session, table, job, job.seq, job.fence)
    assert claims.rows(job.id) == {**dict.fromkeys(JOURNAL, 1), "sighting": 0}


@pytest.mark.parametrize("table", JOURNAL)
def test_a_row_of_a_job_that_does_not_exist_is_refused(job: leases.Claimed, table: str) -> None:
    with psql.connected("worker") as session:
        refused = psql.refusal(
            session,
            f"INSERT INTO ledger_{table} {INSERTS[table]}",
            ["00000000-0000-0000-0000-000000000000", 0, 0],
        )
    assert refused == ("P0001", "ledger_journal_fence")


def test_a_row_waits_for_a_claim_under_way_and_is_then_refused(job: leases.Claimed) -> None:
    """Without the lock a raised fence slips in between the check and the commit."""
    with (
        psql.connected(autocommit=False) as other,
        psql.connected() as watch,
        psql.connected("worker") as late,
    ):
        other.execute(
            "UPDATE ledger_job SET acting_fence = fence, fence = fence + 1 WHERE id = %s", [job.id]
        )
        inserting = psql.Thread(lambda: insert(late, "receipt", job, job.seq, job.fence))
        psql.await_lock_wait(watch)
        other.commit()
        with pytest.raises(psycopg.errors.RaiseException, match="are not the current ones"):
            inserting.result()
    assert claims.rows(job.id)["receipt"] == 0


@pytest.mark.parametrize("role", ROLES)
def test_a_sighting_is_taken_under_any_fence_and_none(job: leases.Claimed, role: str) -> None:
    before = claims.snapshot(job.id)
    with psql.connected(role) as session:
        for fence in (None, 0, 99):
            session.execute(SIGHTING, [job.id, fence])
    assert claims.rows(job.id)["sighting"] == 3
    assert claims.snapshot(job.id) == before


@pytest.mark.parametrize("second", ["confirmed", "refused"])
@pytest.mark.parametrize("first", ["confirmed", "refused"])
def test_an_operation_has_one_final_receipt(job: leases.Claimed, first: str, second: str) -> None:
    statement = INSERTS["receipt"].replace("'confirmed'", "%s")
    with psql.connected("worker") as session:
        session.execute(
            f"INSERT INTO ledger_receipt {statement}", [job.id, job.seq, job.fence, first]
        )
        refused = psql.refusal(
            session, f"INSERT INTO ledger_receipt {statement}", [job.id, job.seq, job.fence, second]
        )
        assert refused == ("23505", "ledger_receipt_final_once")
        session.execute(
            f"INSERT INTO ledger_receipt {statement}", [job.id, job.seq, job.fence, "unknown"]
        )
    assert claims.rows(job.id)["receipt"] == 2


def undo(job: leases.Claimed, **arguments: Any) -> tuple[str, str]:
    """Who refuses the undo of a payment of 120.00 EUR that was confirmed; empty when it is taken."""
    captured = claims.attempt("payment", amount_minor=12_000, currency="EUR")
    journal.settle(
        [claims.write(job, attempts=[captured], receipts=[claims.receipt(step="payment")])]
    )
    with psql.connected("worker") as session:
        return psql.met(
            session,
            "INSERT INTO ledger_attempt (job_id, seq, fence, step, direction, n, arguments, fingerprint)"
            " VALUES (%s, %s, %s, 'payment', 'backward', 1, %s, '\\x00')",
            [job.id, job.seq + 1, job.fence, json.dumps(arguments)],
        )


@pytest.mark.parametrize(
    ("amount", "currency"),
    [(12_001, "EUR"), (12_000, "USD"), (2**62, "EUR"), (0, "EUR"), (-1, "EUR"), (-12_000, "EUR")],
)
def test_an_undo_for_more_than_was_confirmed_or_for_nothing_is_refused(
    job: leases.Claimed, amount: int, currency: str
) -> None:
    assert undo(job, amount_minor=amount, currency=currency) == ("P0001", "ledger_attempt_money")
    assert claims.rows(job.id)["attempt"] == 1


@pytest.mark.parametrize("amount", [12_000, 1])
def test_an_undo_for_what_was_confirmed_or_less_is_taken(job: leases.Claimed, amount: int) -> None:
    assert undo(job, amount_minor=amount, currency="EUR") == ("", "")
    assert claims.rows(job.id)["attempt"] == 2


def test_what_we_saw_is_never_bound_by_money(job: leases.Claimed) -> None:
    """A provider that captured more than we ordered has to be written down."""
    captured = claims.attempt("payment", amount_minor=12_000, currency="EUR")
    seen = claims.receipt("unknown", step="payment", data={"amount_minor": 99_000})
    assert claims.settle(claims.write(job, attempts=[captured], receipts=[seen])) == ["applied"]

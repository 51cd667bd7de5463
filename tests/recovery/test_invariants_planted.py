"""Each named query finds the row that breaks it, by its id, and nothing in a database where the engine alone has written.

Rows that the database refuses are planted as no application can: as a superuser, without triggers, and where a unique index
or a constraint stands in the way, without it, inside a transaction that is rolled back: one set of jobs serves all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connection, connections, transaction
from pytest_django import DjangoDbBlocker

from ledger import acts, models, outcomes, resolutions
from recovery.invariants import check, named
from tests import conftest, drives, factories, sagas, staff

PRICE = {"amount_minor": 12_345, "currency": "EUR"}
OTHER = "'\\x00'::bytea"
ATTEMPT = """INSERT INTO ledger_attempt (job_id, seq, fence, step, direction, n, arguments, fingerprint, at)
    SELECT job_id, seq, fence, step, direction, n + 1, NULL, {print}, at FROM ledger_attempt
    WHERE job_id = '{job}' AND step = 'room' AND direction = 'forward' AND n = 1"""
RESOLUTION = """INSERT INTO ledger_resolution (job_id, seq, fence, step, direction, act, decided_by, reason, evidence, at)
    VALUES ('{job}', 1, 1, '', 'forward', 'note', 'sam', 'because', '{{}}', ledger_now())"""
# invariant: (which job, what breaks it)
PLANTS = {
    "S1": ("confirmed", "DELETE FROM ledger_submission WHERE job_id = '{job}'"),
    "T1": ("confirmed", "UPDATE ledger_submission SET tenant_id = '{other}' WHERE job_id = '{job}'"),
    "T2": ("confirmed", RESOLUTION),
    "D1": ("confirmed", "DELETE FROM ledger_job WHERE id = '{job}'"),
    "L1": ("confirmed", "UPDATE ledger_attempt SET fence = 9 WHERE job_id = '{job}' AND seq = 1"),
    "L2": ("confirmed", "UPDATE ledger_checkpoint SET fence = 9 WHERE job_id = '{job}' AND seq = {seq}"),
    "L4": (
        "confirmed",
        "UPDATE ledger_checkpoint SET fence = 2 WHERE job_id = '{job}' AND seq = {seq};"
        "UPDATE ledger_attempt SET at = at + interval '1 h' WHERE job_id = '{job}' AND seq = 1",
    ),
    "L5": (
        "waiting",
        "UPDATE ledger_job SET state = 'running', owner = gen_random_uuid(),"
        " lease_until = ledger_now() + interval '1 h' WHERE id = '{job}'",
    ),
    "L7": (
        "waiting",
        "ALTER TABLE ledger_job DROP CONSTRAINT ledger_job_lease_iff_running;"
        "UPDATE ledger_job SET state = 'running' WHERE id = '{job}'",
    ),
    "R6": (
        "confirmed",
        "DROP INDEX ledger_receipt_final_once;"
        "INSERT INTO ledger_receipt (job_id, seq, fence, step, direction, n, outcome, evidence, at)"
        " SELECT job_id, seq, fence, step, direction, n, 'refused', evidence, at FROM ledger_receipt"
        " WHERE job_id = '{job}' AND step = 'room'",
    ),
    "C2": ("confirmed", "UPDATE ledger_job SET seq = seq + 1 WHERE id = '{job}'"),
    "C3": ("confirmed", "DELETE FROM ledger_receipt WHERE job_id = '{job}' AND step = 'room'"),
    "C5": ("waiting", "UPDATE ledger_job SET due_at = due_at + interval '1 day' WHERE id = '{job}'"),
    "O8": ("confirmed", "DELETE FROM ledger_checkpoint WHERE job_id = '{job}' AND seq = {seq}"),
    "O11": ("parked", "UPDATE ledger_job SET parked_detail = '' WHERE id = '{job}'"),
    "R2": ("confirmed", "DELETE FROM ledger_attempt WHERE job_id = '{job}' AND step = 'room'"),
    "R3": ("confirmed", ATTEMPT.replace("{print}", OTHER)),
    "R7": ("confirmed", "UPDATE ledger_attempt SET n = 2, arguments = NULL WHERE job_id = '{job}' AND step = 'room'"),
    "R8": (
        "refused",
        "UPDATE ledger_receipt SET evidence = evidence || '{{\"seen_by\": \"late_probe\"}}' WHERE job_id = '{job}'",
    ),
    "O1": ("compensated", "UPDATE ledger_job SET state = 'refused' WHERE id = '{job}'"),
    "O2": ("confirmed", "DELETE FROM ledger_receipt WHERE job_id = '{job}' AND step = 'room'"),
    "O3": (
        "compensated",
        "DELETE FROM ledger_receipt WHERE job_id = '{job}' AND step = 'room' AND direction = 'backward'",
    ),
    "O4": (
        "compensated",
        "UPDATE ledger_attempt SET arguments = jsonb_set(arguments, '{{amount_minor}}', '99999')"
        " WHERE job_id = '{job}' AND step = 'payment' AND direction = 'backward'",
    ),
    "O5": (
        "refused",
        "UPDATE ledger_receipt SET outcome = 'unknown' WHERE job_id = '{job}' AND step = 'room'",
    ),
    "O6": (
        "compensated",
        "UPDATE ledger_attempt SET id = -id WHERE job_id = '{job}' AND step = 'room' AND direction = 'backward'",
    ),
    "O7": (
        "compensated",
        "UPDATE ledger_job SET turned_at = created_at WHERE id = '{job}'",
    ),
    "O9": (
        "compensated",
        "UPDATE ledger_receipt SET outcome = 'refused' WHERE job_id = '{job}' AND step = 'room' AND direction = 'backward'",
    ),
    "O10": ("compensated", "UPDATE ledger_job SET pivot_sent = true WHERE id = '{job}'"),
}  # fmt: skip
GUARDS = {
    "C1": ("ledger_job_guard", "ALTER TABLE ledger_job DISABLE TRIGGER ledger_job_guard"),
    "R6": (
        "ledger_receipt_update",
        "ALTER TABLE ledger_receipt DISABLE TRIGGER ledger_receipt_update",
    ),
}


def act(job: UUID, what: str, **more: Any) -> None:
    asked = acts.Asked(act=what, by="sam", reason=staff.REASON, **more)
    resolutions.act(job, asked, by=staff.member("sam", "supervisor"))


@pytest.fixture(scope="module")
def jobs(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[dict[str, UUID]]:
    """One of each kind of end, one that a person has ruled on, and one that waits."""
    world, waits = sagas.World(), settings.BACKOFF_SECONDS
    settings.BACKOFF_SECONDS = 0.0
    with django_db_blocker.unblock(), sagas.trip(world, probe=True) as trip:
        conftest.empty()
        found = {"confirmed": factories.submit(trip, PRICE)}
        drives.drive_all()
        world.says("ticket:forward", sagas.raising(outcomes.Refused("sold_out")))
        found["compensated"] = factories.submit(trip, PRICE)
        drives.drive_all()
        world.says("room:forward", sagas.raising(outcomes.Refused("sold_out")))
        found["refused"] = factories.submit(trip, PRICE)
        drives.drive_all()
        for job in ("parked", "ruled"):
            world.says("ticket:forward", sagas.raising(outcomes.Refused("sold_out")))
            world.says("payment:backward", sagas.raising(outcomes.Refused("closed")))
            found[job] = factories.submit(trip, PRICE)
            drives.drive_all()
        act(found["ruled"], "done", evidence={"ref": "by-hand"})
        drives.drive_all()
        found["waiting"] = factories.submit(trip, PRICE)
        states = dict(models.Job.objects.values_list("id", "state"))
        assert {name: states[job] for name, job in found.items()} == {
            **{name: name for name in ("confirmed", "compensated", "refused", "parked", "waiting")},
            "ruled": "compensated",
        }
        yield found
        settings.BACKOFF_SECONDS = waits
        conftest.empty()
        connections.close_all()


def violations(name: str) -> dict[str, list[str]]:
    """What breaks: of one invariant, or of all."""
    given = named.parameters()
    found = {i.id: check.breaks(i, given) for i in check.ALL if name in ("", i.id)}
    return {id_: ids for id_, (count, ids) in found.items() if count}


@contextmanager
def planted(statement: str) -> Iterator[None]:
    """Without triggers and, where the statement takes them away, without constraints; then as if it never was."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute(statement)
            cursor.execute("SET LOCAL session_replication_role = origin")
        yield
        transaction.set_rollback(True)


def test_every_invariant_has_a_plant_and_an_id_of_its_own() -> None:
    ids = [invariant.id for invariant in check.ALL]
    assert len(ids) == len(set(ids))
    assert set(ids) == set(PLANTS) | set(GUARDS) | {"S8"}
    assert all(i.statement.endswith(".") for i in check.ALL)


def test_nothing_breaks_where_only_the_engine_and_people_have_written(
    jobs: dict[str, UUID],
) -> None:
    assert [f.id for f in check.run() if not f.is_ok()] == []


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_row_is_found_by_its_id(jobs: dict[str, UUID], name: str) -> None:
    kind, statement = PLANTS[name]
    job = models.Job.objects.get(id=jobs[kind])
    other = models.Tenant.objects.exclude(id=job.tenant_id)[0].id
    with planted(statement.format(job=job.id, seq=job.seq, other=other)):
        assert violations(name) == {name: [str(job.id)]}
    assert violations(name) == {}


@pytest.mark.parametrize("amount", [0, -1, -12_345, 12_346])
def test_a_refund_of_nothing_or_less_is_found_like_one_of_too_much(
    jobs: dict[str, UUID], amount: int
) -> None:
    _, statement = PLANTS["O4"]
    job = jobs["compensated"]
    with planted(statement.replace("99999", str(amount)).format(job=job)):
        assert violations("O4") == {"O4": [str(job)]}


@pytest.mark.parametrize("name", sorted(GUARDS))
def test_a_guard_that_is_off_is_found(jobs: dict[str, UUID], name: str) -> None:
    guard, statement = GUARDS[name]
    with planted(statement):
        assert violations(name) == {name: [guard]}


def test_a_key_that_lost_its_job_otherwise_than_by_retention_is_found(
    jobs: dict[str, UUID],
) -> None:
    submission = models.Submission.objects.get(job_id=jobs["confirmed"])
    statement = f"UPDATE ledger_submission SET job_id = NULL WHERE id = '{submission.id}'"  # noqa: S608
    with planted(statement):
        assert violations("S8") == {"S8": [str(submission.id)]}

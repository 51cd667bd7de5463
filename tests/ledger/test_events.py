"""Each end and each park of a job of a tenant that announces leaves one event, in that commit; nobody else writes one."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from ledger import events, models, outcomes, sql
from tests import conftest, drives, factories, psql, sagas
from tests.conftest import Roles
from tests.webhooks import tenants

pytestmark = pytest.mark.usefixtures("database")


def announcing() -> models.Tenant:
    tenant: models.Tenant = factories.TenantFactory.create()
    with transaction.atomic():
        events.announce(tenant.id)
    return tenant


def driven(world: sagas.World, tenant: models.Tenant, **of: Any) -> UUID:
    with sagas.trip(world, **of) as trip:
        job = factories.submit(trip, tenant=tenant)
        with conftest.role("worker"):
            drives.drive_all()
    return job


def take(limit: int = 100) -> list[events.Event]:
    with transaction.atomic():
        return events.take(limit)


def test_an_end_is_one_event_with_the_jobs_version_then() -> None:
    tenant = announcing()
    job = driven(sagas.World(), tenant)
    (event,) = take()
    row = models.Job.objects.get(id=job)
    assert (event.job_id, event.tenant_id, event.state) == (job, tenant.id, "confirmed")
    assert (event.seq, event.direction) == (row.seq, row.direction)
    assert take() == []


def test_a_tenant_that_announces_nothing_leaves_none() -> None:
    driven(sagas.World(), factories.TenantFactory.create())
    assert models.Event.objects.count() == 0


def test_parked_and_back_and_parked_again_are_an_event_each() -> None:
    world = sagas.World()
    world.says("payment:forward", sagas.raising(TimeoutError()))
    job = driven(world, announcing(), effect=world.effect("payment", key_lifetime=None))
    for act in (tenants.GO_ON, tenants.PARK, tenants.CLOSE):
        sql.fetch(act, [job])
    assert [state for state, _ in tenants.events(job)] == ["parked", "waiting", "parked", "closed"]


def test_a_way_back_says_so() -> None:
    world = sagas.World()
    world.says("ticket:forward", sagas.raising(outcomes.Refused("sold_out")))
    driven(world, announcing())
    (event,) = take()
    assert (event.state, event.direction) == ("compensated", "backward")


def test_it_is_there_exactly_if_the_move_is() -> None:
    tenant = announcing()
    with sagas.trip(sagas.World()) as trip:
        job = factories.submit(trip, tenant=tenant)
    with transaction.atomic():
        sql.fetch(tenants.PARK, [job])
        assert models.Event.objects.count() == 1
        transaction.set_rollback(True)
    assert models.Event.objects.count() == 0


def test_what_is_taken_and_rolled_back_is_pending_again() -> None:
    driven(sagas.World(), announcing())
    with transaction.atomic():
        assert len(events.take(10)) == 1
        transaction.set_rollback(True)
    assert len(take()) == 1


def test_two_that_take_at_once_share_them(as_role: Roles) -> None:
    tenant = announcing()
    jobs = {driven(sagas.World(), tenant) for _ in range(3)}
    with psql.connected("worker", autocommit=False) as other:
        first = {row[1] for row in other.execute(events.TAKE, [2]).fetchall()}
        with as_role("worker"):
            rest = {event.job_id for event in take()}
        other.commit()
    assert len(first) == 2
    assert first | rest == jobs
    assert not first & rest


def test_one_that_is_committed_late_is_not_passed_over() -> None:
    """Whoever takes remembers no place: the event with the lower id comes last, and is taken by the next."""
    tenant = announcing()
    with sagas.trip(sagas.World()) as trip:
        late, job = (factories.submit(trip, tenant=tenant) for _ in range(2))
        with psql.connected("worker", autocommit=False) as slow:
            slow.execute(tenants.PARK, [late])
            sql.fetch(tenants.PARK, [job])
            (first,) = take()
            slow.commit()
        (second,) = take()
    assert (first.job_id, second.job_id) == (job, late)
    assert second.id < first.id
    assert take() == []


@pytest.mark.parametrize("role", ["owner", "api", "worker", "retention"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_event SET state = 'confirmed'",
        "UPDATE ledger_event SET pending = false, seq = 0",
        "DELETE FROM ledger_event",
        "TRUNCATE ledger_event CASCADE",
    ],
)
def test_nobody_changes_or_removes_one(role: str, statement: str) -> None:
    job = driven(sagas.World(), announcing())
    if role == "retention" and statement.startswith("DELETE"):
        pytest.skip("with its job, it may")
    with psql.connected(role) as session:
        assert psql.refusal(session, statement)[0] in ("42501", "P0001")
    assert tenants.events(job) == [("confirmed", True)]


@pytest.mark.parametrize("role", ["api", "worker", "retention"])
def test_no_role_writes_one_by_hand(role: str) -> None:
    job = driven(sagas.World(), announcing())
    forged = "INSERT INTO ledger_event (job_id, tenant_id, state, direction, seq) VALUES (%s, %s, 'refused', 'forward', 1)"
    with psql.connected(role) as session:
        assert psql.refusal(session, forged, [job, uuid4()])[0] == "42501"
        assert psql.refusal(session, "SELECT ledger_tell()")[0] != ""
    assert len(tenants.events(job)) == 1


def test_the_trigger_knows_the_states() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'ledger_job_tell'"
        )
        (made,) = cursor.fetchone()
    for state in ("parked", *models.ENDED_STATES):
        assert made.count(f"'{state}'") == 2

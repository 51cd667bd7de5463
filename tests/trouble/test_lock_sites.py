"""Every place that locks a row does so on the server: with the row in somebody else's hands it waits with a limit, or skips.

A lock that was never taken would show here: the statement would go through. The claims, the reclaim, deadlines, expired
holds, permits, unsupported versions, webhooks and retention have theirs beside their other tests.
"""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, transaction

from bookings import rooms
from ledger import journal, leases, models, reconcile, saga, shares, sightings, sql, turns
from tests import claims, drives, factories, hotels, psql, sagas
from tests.recovery import test_sweeps_bad_rows as bad_rows

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.timeout(60)]
JOB = "SELECT 1 FROM ledger_job WHERE id = %s FOR UPDATE"
Work = Callable[[leases.Claimed], object]


@pytest.fixture
def trip() -> saga.Saga:
    with sagas.trip(sagas.World()) as definition:
        return definition


def settle(job: leases.Claimed) -> None:
    journal.settle([claims.write(job, attempts=[claims.attempt()])])


def renew(job: leases.Claimed) -> None:
    leases.renew([job.lease])


def cancel(job: leases.Claimed) -> None:
    turns.cancel(job.id, by="guest", reason="cancelled")


@pytest.mark.parametrize("work", [settle, renew, cancel])
def test_who_must_have_this_job_waits_with_a_limit_and_changes_nothing(
    trip: saga.Saga, work: Work
) -> None:
    job = claims.running(trip)
    before = claims.snapshot(job.id)
    with psql.connected(autocommit=False) as other:
        other.execute(JOB, [job.id])
        sql.fetch("SET lock_timeout = '100ms'")
        with pytest.raises(OperationalError) as met:
            work(job)
        assert sql.state_of(met.value) == "55P03"
        other.rollback()
    assert claims.snapshot(job.id) == before
    work(job)
    assert claims.snapshot(job.id) != before


def test_promotion_leaves_a_locked_job_for_the_next(trip: saga.Saga) -> None:
    busy, free = factories.submit(trip), factories.submit(trip)
    with psql.connected(autocommit=False) as other:
        other.execute(JOB, [busy])
        assert shares.promote("forward") == 1
        assert states(busy, free) == ["waiting", "queued"]
        other.rollback()
    assert shares.promote("forward") == 1


def ended(trip: saga.Saga) -> UUID:
    """An ended job that a sighting contradicts."""
    job = factories.submit(trip)
    drives.drive_all()
    found = {"ref": "another", "data": {}}
    sightings.record(
        [sightings.NewSighting(job, "payment", claims.FORWARD, 1, "late", "confirmed", found, None)]
    )
    return job


def test_reconciling_leaves_a_locked_job_for_the_next() -> None:
    with sagas.trip(sagas.World()) as trip:
        busy, free = ended(trip), ended(trip)
    with psql.connected(autocommit=False) as other:
        other.execute(JOB, [busy])
        assert reconcile.judge(10) == 1
        assert states(busy, free) == ["confirmed", "parked"]
        other.rollback()
    assert reconcile.judge(10) == 1
    assert states(busy, free) == ["parked", "parked"]


@transaction.atomic
def lock_nights(call: saga.Call) -> None:
    rooms.NIGHTS.lock(sorted(rooms.NIGHTS.keys(call.arguments)))


@transaction.atomic
def find_reservation(call: saga.Call) -> None:
    rooms._find(call.arguments["holder"])


@pytest.mark.parametrize(
    ("lock", "table"),
    [(lock_nights, "bookings_roomnight"), (find_reservation, "bookings_reservation")],
)
def test_a_room_in_somebody_elses_hands_is_waited_for_with_a_limit(
    lock: Callable[[saga.Call], None], table: str
) -> None:
    small = hotels.make()
    rooms.hold(hotels.call("mine", small.stay()))
    undo = hotels.held_by("mine", small.stay())
    with psql.connected(autocommit=False) as other:
        other.execute(f"SELECT 1 FROM {table} FOR UPDATE")  # noqa: S608  a name of this test's
        sql.fetch("SET lock_timeout = '100ms'")
        with pytest.raises(OperationalError) as met:
            lock(undo)
        assert sql.state_of(met.value) == "55P03"
        other.rollback()
    lock(undo)


# --- Who takes many leaves a locked one for the next ------------------------------------------------------------------

GIVE_BACK = """
UPDATE ledger_job SET acting_fence = fence, state = 'queued', owner = NULL, lease_until = NULL WHERE state = 'running'
"""


def under_a_cap(trip: saga.Saga) -> UUID:
    return factories.submit(trip, tenant=factories.TenantFactory.create(running_cap=5))


def due_soon(trip: saga.Saga) -> UUID:
    return drives.moved(factories.submit(trip), "due_at = ledger_now() + interval '20 s'")


def suspected(trip: saga.Saga) -> UUID:
    job = factories.submit(trip)
    shares.promote("forward")
    return drives.moved(job, "suspect = true")


def claim_a_suspect(trip: saga.Saga) -> object:
    """One process drives one at a time: what was taken before is given back first."""
    sql.fetch(GIVE_BACK)
    return leases.claim("forward", 1, [trip.key], uuid4(), suspect=True)


@pytest.mark.parametrize(
    ("make", "take"),
    [
        (under_a_cap, lambda _trip: shares.promote("forward")),
        (due_soon, lambda trip: shares.hasten([trip.name], timedelta(minutes=1))),
        (bad_rows.past_pivot, lambda _trip: turns.park_overdue(10)),
        (suspected, claim_a_suspect),
    ],
    ids=["promotion under a cap", "hastening", "overdue", "suspects"],
)
def test_who_takes_many_leaves_a_locked_job_for_the_next(
    trip: saga.Saga, make: Callable[[saga.Saga], UUID], take: Callable[[saga.Saga], object]
) -> None:
    busy, free = make(trip), make(trip)
    before = {job: claims.snapshot(job) for job in (busy, free)}
    sql.fetch("SET lock_timeout = '100ms'")
    with psql.connected(autocommit=False) as other:
        other.execute(JOB, [busy])
        take(trip)
        assert claims.snapshot(free) != before[free]
        other.rollback()
    assert claims.snapshot(busy) == before[busy]
    take(trip)
    assert claims.snapshot(busy) != before[busy]


def states(*jobs: UUID) -> list[str]:
    return [models.Job.objects.get(id=job).state for job in jobs]

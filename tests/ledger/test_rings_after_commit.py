"""Whoever rings has committed: at the moment of a ring, everybody else sees what it is rung for; what is rolled back rings
for nobody.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest
from django.db import connection, transaction

from bookings import submission as bookings_submission
from ledger import (
    engine,
    outcomes,
    permits,
    resolutions,
    saga,
    sightings,
    tickets,
    turns,
)
from recovery import sweeps
from tests import claims, drives, factories, hotels, psql, sagas, staff

pytestmark = pytest.mark.usefixtures("database")
JOBS = "SELECT id, state, lane, direction, due_at <= ledger_now() FROM ledger_job ORDER BY id"
Rung = list[tuple[str, bool, object]]
Work = Callable[[], object]


def seen_by_others() -> object:
    with psql.connected() as other:
        return other.execute(JOBS).fetchall()


@pytest.fixture
def rung() -> Iterator[Rung]:
    """Of each ring: its lane, whether a transaction was open, and what others saw at that moment."""
    found: Rung = []

    def hear(lane: str) -> None:
        found.append((lane, connection.in_atomic_block, seen_by_others()))

    with tickets.heard_by(hear):
        yield found


@pytest.fixture
def world() -> sagas.World:
    return sagas.World()


@pytest.fixture
def trip(world: sagas.World) -> Iterator[saga.Saga]:
    effect = world.effect("any", key_lifetime=timedelta(microseconds=1))
    with sagas.trip(world, effect=effect) as definition:
        yield definition


def parked(world: sagas.World, trip: saga.Saga) -> UUID:
    world.says("payment:forward", sagas.raising(TimeoutError()))
    job = factories.submit(trip)
    drives.drive_all()
    assert drives.state(job) == "parked"
    return job


def submitting(_world: sagas.World, trip: saga.Saga) -> Work:
    return partial(factories.submit, trip)


def submitting_within(_world: sagas.World, trip: saga.Saga) -> Work:
    def work() -> None:
        with transaction.atomic(), transaction.atomic():
            factories.submit(trip)

    return work


def booking_many(_world: sagas.World, _trip: saga.Saga) -> Work:
    small, tenant = hotels.make(capacity=5), hotels.tenant()
    wanted = [(str(n), hotels.wanted(small)) for n in range(3)]
    return lambda: bookings_submission.book_each(tenant, wanted)


def cancelling(_world: sagas.World, trip: saga.Saga) -> Work:
    return partial(turns.cancel, factories.submit(trip), by="guest", reason="changed plans")


def cancelling_if(_world: sagas.World, trip: saga.Saga) -> Work:
    job = factories.submit(trip)
    return partial(turns.cancel_if, lambda: True, job, by="guest", reason="changed plans")


def sending_back(_world: sagas.World, trip: saga.Saga) -> Work:
    """A person's act on a job that is not parked: the turn and the staff log are one transaction."""
    return partial(staff.does, factories.submit(trip), "compensate", by=staff.member("sam"))


def deadline(_world: sagas.World, trip: saga.Saga) -> Work:
    drives.moved(factories.submit(trip), "deadline_at = ledger_now() - interval '1 min'")
    return sweeps.expire_deadlines


def reclaiming(_world: sagas.World, trip: saga.Saga) -> Work:
    drives.expire_lease(claims.running(trip).id)
    return sweeps.reclaim


def promoting(_world: sagas.World, trip: saga.Saga) -> Work:
    factories.submit(trip)
    return sweeps.promote


def reconciling(world: sagas.World, trip: saga.Saga) -> Work:
    job = parked(world, trip)
    found = {"ref": f"ref-{job}:payment:forward", "data": {}}
    forward = saga.Direction.FORWARD
    late = sightings.NewSighting(job, "payment", forward, 1, "late", "confirmed", found, None)
    sightings.record([late])
    return sweeps.reconcile


def ruling(world: sagas.World, trip: saga.Saga) -> Work:
    job = parked(world, trip)
    return partial(staff.does, job, "done", "payment:forward", by=staff.member("sam"))


def settling(world: sagas.World, trip: saga.Saga) -> Work:
    """What goes back changes its lane."""
    world.says("ticket:forward", sagas.raising(outcomes.Refused("sold_out")))
    factories.submit(trip)
    return partial(engine.drive, "forward")


def unpausing(_world: sagas.World, trip: saga.Saga) -> Work:
    drives.moved(factories.submit(trip), "due_at = ledger_now() + interval '1 s'")
    return partial(permits.limit, "world", {"paused": False})


WORKS = {
    submitting: "forward", submitting_within: "forward", booking_many: "forward", cancelling: "compensation",
    cancelling_if: "compensation", sending_back: "compensation", deadline: "compensation", reclaiming: "forward",
    promoting: "forward", reconciling: "forward", ruling: "forward", settling: "compensation", unpausing: "forward",
}  # fmt: skip


@pytest.mark.parametrize("made", WORKS, ids=lambda made: made.__name__)
def test_others_see_what_is_rung_for(
    world: sagas.World,
    trip: saga.Saga,
    rung: Rung,
    made: Callable[[sagas.World, saga.Saga], Work],
) -> None:
    work = made(world, trip)
    rung.clear()
    before = seen_by_others()
    work()
    assert WORKS[made] in {lane for lane, _, _ in rung}
    assert [is_open for _, is_open, _ in rung] == [False] * len(rung)
    assert [seen for _, _, seen in rung] == [seen_by_others()] * len(rung)
    assert before != seen_by_others()


@pytest.mark.parametrize("act", ["compensate", "done"])
def test_an_act_that_is_rolled_back_rings_for_nobody(
    world: sagas.World, trip: saga.Saga, rung: Rung, act: str
) -> None:
    """The staff log cannot be written, which is the act's last statement."""
    job = factories.submit(trip) if act == "compensate" else parked(world, trip)
    sam, operation = staff.member("sam"), "payment:forward" if act == "done" else ""
    rung.clear()
    before = claims.snapshot(job)
    with psql.connected() as owner:
        owner.execute("ALTER TABLE django_admin_log ADD CONSTRAINT test_full CHECK (id = 0)")
        try:
            with pytest.raises(Exception, match="test_full"):
                resolutions.act(job, staff.asked(act, sam, operation), by=sam)
        finally:
            owner.execute("ALTER TABLE django_admin_log DROP CONSTRAINT test_full")
    assert (rung, claims.snapshot(job)) == ([], before)

"""An owner that lost its job writes nothing for it, whatever kind of write it is; what it knew becomes a sighting."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import REGISTRY

from ledger import crashpoints, engine, journal, leases, models, outcomes, saga
from ledger.saga import Call
from ledger.states import JobState
from tests import claims, drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")

KINDS: dict[str, dict[str, Any]] = {
    "receipt": {"receipts": [claims.receipt()]},
    "attempt": {"attempts": [claims.attempt("payment")], "pivot_sent": True},
    "turn": {"direction": claims.BACKWARD},
    "release": {"state": JobState.QUEUED},
    "wait": {"state": JobState.WAITING, "lane": "compensation", "delay_seconds": 5.0},
    "park": {"state": JobState.PARKED, "parked_reason": "exhausted"},
    "confirmed": {"state": JobState.CONFIRMED, "checkpoint": {"state": "confirmed"}},
    "refused": {"state": JobState.REFUSED, "checkpoint": {"state": "refused"}},
    "compensated": {"state": JobState.COMPENSATED, "checkpoint": {"state": "compensated"}},
}


def refused_writes(write: str) -> float:
    return REGISTRY.get_sample_value("ledger_stale_writes_total", {"write": write}) or 0.0


def sightings(job_id: UUID) -> list[tuple[str, str, str, int | None]]:
    rows = models.Sighting.objects.filter(job_id=job_id).order_by("id")
    return [(s.step, s.kind, s.outcome, s.fence) for s in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_a_settle_under_an_old_fence_writes_nothing_and_the_current_owners_is_stored(
    kind: str,
) -> None:
    with sagas.trip(sagas.World()) as trip:
        old = claims.running(trip)
    claims.lose(old.id)
    before = claims.snapshot(old.id)
    written = journal.settle([claims.write(old, **KINDS[kind])])[old.id]
    assert (written.result, written.fits, written.fence) == ("stale", False, old.fence + 1)
    assert claims.snapshot(old.id) == before
    assert claims.settle(claims.write(old, fence=old.fence + 1, **KINDS[kind])) == ["applied"]
    assert claims.snapshot(old.id) != before


@pytest.mark.parametrize("kind", KINDS)
def test_a_settle_under_an_old_seq_writes_nothing(kind: str) -> None:
    with sagas.trip(sagas.World()) as trip:
        job = claims.running(trip)
    assert claims.settle(claims.write(job, attempts=[claims.attempt()])) == ["applied"]
    before = claims.snapshot(job.id)
    assert claims.settle(claims.write(job, **KINDS[kind])) == ["stale"]
    assert claims.snapshot(job.id) == before


def test_a_settle_after_the_job_was_given_back_writes_nothing() -> None:
    with sagas.trip(sagas.World()) as trip:
        job = claims.running(trip)
    drives.expire_lease(job.id)
    leases.reclaim(10)
    before = claims.snapshot(job.id)
    assert before[0]["state"] == "queued"
    assert claims.settle(claims.write(job, **KINDS["receipt"])) == ["stale"]
    assert claims.snapshot(job.id) == before


def test_a_stale_row_takes_nothing_from_the_others_of_its_commit() -> None:
    with sagas.trip(sagas.World()) as trip:
        lost, kept = claims.running(trip), claims.running(trip)
    claims.lose(lost.id)
    writes = [claims.write(job, attempts=[claims.attempt()]) for job in (lost, kept)]
    assert claims.settle(*writes) == ["stale", "applied"]
    assert (claims.rows(lost.id)["attempt"], claims.rows(kept.id)["attempt"]) == (0, 1)


def lost_meanwhile(call: Call) -> outcomes.Confirmed:
    claims.lose(call.job_id)
    return sagas.confirm(call)


def test_the_outcome_of_a_lost_job_becomes_a_sighting_and_is_counted() -> None:
    world, counted = sagas.World(), refused_writes("settle")
    world.says("payment:forward", lost_meanwhile)
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        engine.drive("forward")
    assert sightings(job) == [("payment", "late", "confirmed", 1)]
    assert drives.receipts(job) == [("room", "forward", "confirmed")]
    assert world.called == ["room:forward", "payment:forward"]
    assert refused_writes("settle") == counted + 1


def test_the_next_owner_goes_on_from_that_sighting_without_a_second_call() -> None:
    world = sagas.World()
    world.says("payment:forward", lost_meanwhile)
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        engine.drive("forward")
        drives.expire_lease(job)
        leases.reclaim(10)
        drives.drive_all()
    assert drives.state(job) == "confirmed"
    assert world.called == ["room:forward", "payment:forward", "ticket:forward"]


def test_a_current_owner_leaves_no_sighting() -> None:
    world, counted = sagas.World(), refused_writes("settle")
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        engine.drive("forward")
    assert (drives.state(job), sightings(job)) == ("confirmed", [])
    assert refused_writes("settle") == counted


def test_a_renewal_under_an_old_fence_moves_no_lease() -> None:
    with sagas.trip(sagas.World()) as trip:
        lost, kept = claims.running(trip), claims.running(trip)
    claims.lose(lost.id)
    drives.expire_lease(lost.id)
    before = claims.snapshot(lost.id)
    renewed = leases.renew([lost.lease, kept.lease])
    assert set(renewed) == {kept.id}
    assert claims.snapshot(lost.id) == before


def test_an_owner_whose_renewal_is_refused_drops_the_job(settings: Any) -> None:
    settings.HEARTBEAT_SECONDS = 0.0
    world, counted = sagas.World(), refused_writes("renew")
    world.says("payment:forward", lost_meanwhile)
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        with (
            psql.connected() as watch,
            crashpoints.armed("renew.before", _once_fence_is(watch, job, 2)),
        ):
            engine.drive("forward")
    assert refused_writes("renew") == counted + 1
    assert drives.receipts(job) == [("room", "forward", "confirmed")]


def _once_fence_is(watch: Any, job: UUID, fence: int) -> Callable[[str], None]:
    """Hold renewals back, once the payment is being called, until its job is lost."""

    def wait(_point: str) -> None:
        if claims.rows(job)["attempt"] == 2:
            psql.await_true(watch, "SELECT fence = %s FROM ledger_job WHERE id = %s", [fence, job])

    return wait


def local_saga(world: sagas.World) -> saga.Saga:
    return saga.Saga(
        "test.local",
        version=1,
        steps=[sagas.step(world, "room", effect=saga.LOCAL, undo_effect=saga.LOCAL)],
    )


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_local_step_of_a_lost_job_does_not_run(*, is_lost: bool) -> None:
    world = sagas.World()
    with sagas.registered(local_saga(world)) as definition:
        job = factories.submit(definition)
        with crashpoints.armed("local.before", lambda _p: claims.lose(job) if is_lost else None):
            engine.drive("forward")
    assert world.called == ([] if is_lost else ["room:forward"])
    assert drives.receipts(job) == ([] if is_lost else [("room", "forward", "confirmed")])
    assert drives.state(job) == ("running" if is_lost else "confirmed")


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_release_of_a_lost_job_gives_nothing_back(
    monkeypatch: pytest.MonkeyPatch, *, is_lost: bool
) -> None:
    world = sagas.World()
    monkeypatch.setattr(engine, "leaving", lambda: bool(world.called))
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        world.says("room:forward", lost_meanwhile if is_lost else sagas.confirm)
        engine.drive("forward")
    assert drives.state(job) == ("running" if is_lost else "queued")
    assert claims.snapshot(job)[0]["fence"] == (2 if is_lost else 1)

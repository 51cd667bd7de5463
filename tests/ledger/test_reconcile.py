"""Sightings of jobs that nobody owns: they decide a parked unknown, or show a contradiction; authority is taken first."""

from datetime import timedelta
from uuid import UUID

import pytest

from ledger import models, outcomes, saga, sightings
from recovery import sweeps
from tests import drives, factories, sagas

pytestmark = pytest.mark.usefixtures("worker_role")


def sight(job: UUID, step: str, outcome: str) -> None:
    evidence = {"ref": "seen-1", "data": {}}
    direction = saga.Direction.FORWARD
    sightings.record([sightings.NewSighting(job, step, direction, 1, "late", outcome, evidence)])


def parked_unknown(world: sagas.World, trip: saga.Saga) -> UUID:
    world.says("payment:forward", sagas.raising(TimeoutError()))
    job = factories.submit(trip)
    drives.drive_all()
    assert models.Job.objects.get(id=job).parked_reason == "unknown_outcome"
    return job


def test_late_evidence_sends_a_parked_unknown_on_under_a_new_fence() -> None:
    world = sagas.World()
    effect = world.effect("any", key_lifetime=timedelta(microseconds=1))
    with sagas.trip(world, effect=effect) as trip:
        job = parked_unknown(world, trip)
        fence = models.Job.objects.get(id=job).fence
        sight(job, "payment", "confirmed")
        assert sweeps.reconcile().count == 1
        row = models.Job.objects.get(id=job)
        assert (row.state, row.fence, row.parked_reason) == ("waiting", fence + 1, "")
        drives.drive_all()
    assert drives.state(job) == "confirmed"
    assert world.times("payment:forward") == 1


def test_without_evidence_a_parked_unknown_stays() -> None:
    world = sagas.World()
    effect = world.effect("any", key_lifetime=timedelta(microseconds=1))
    with sagas.trip(world, effect=effect) as trip:
        job = parked_unknown(world, trip)
        before = models.Job.objects.values().get(id=job)
        assert sweeps.reconcile().count == 0
    assert models.Job.objects.values().get(id=job) == before


@pytest.mark.parametrize(("end", "outcome"), [("confirmed", "refused"), ("refused", "confirmed")])
def test_a_sighting_against_a_final_receipt_parks_even_an_ended_job(end: str, outcome: str) -> None:
    world = sagas.World()
    if end == "refused":
        world.says("room:forward", sagas.raising(outcomes.Refused("sold_out")))
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        drives.drive_all()
        assert drives.state(job) == end
        sight(job, "room", outcome)
        assert [sweeps.reconcile().count for _ in range(2)] == [1, 0]
    row = models.Job.objects.get(id=job)
    assert (row.state, row.parked_reason, row.finished_at) == ("parked", "contradiction", None)
    assert "room:forward" in row.parked_detail


def test_a_sighting_that_agrees_changes_nothing() -> None:
    with sagas.trip(sagas.World()) as trip:
        job = factories.submit(trip)
        drives.drive_all()
        sight(job, "room", "confirmed")
        assert sweeps.reconcile().count == 0
    assert drives.state(job) == "confirmed"

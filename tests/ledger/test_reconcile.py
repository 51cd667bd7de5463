"""Sightings of jobs that nobody owns: they decide a parked unknown, or show a contradiction; authority is taken first."""

from datetime import timedelta
from uuid import UUID

import pytest

from ledger import crashpoints, models, outcomes, reconcile, saga, sightings
from recovery import sweeps
from tests import drives, factories, sagas

pytestmark = pytest.mark.usefixtures("worker_role")


def sight(
    job: UUID,
    step: str,
    outcome: str,
    direction: saga.Direction = saga.Direction.FORWARD,
    fence: int | None = None,
    **evidence: str,
) -> None:
    found = {"ref": f"ref-{job}:{step}:{direction}", "data": {}, **evidence}
    late = sightings.NewSighting(job, step, direction, 1, "late", outcome, found, fence)
    sightings.record([late])


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


def test_another_effect_of_the_same_operation_parks_an_ended_job() -> None:
    """Confirmed twice, by two references, is charged twice."""
    with sagas.trip(sagas.World()) as trip:
        job = factories.submit(trip)
        drives.drive_all()
        sight(job, "payment", "confirmed", ref="another-capture")
        assert [sweeps.reconcile().count for _ in range(2)] == [1, 0]
    assert models.Job.objects.get(id=job).parked_reason == "contradiction"


@pytest.mark.parametrize("outcome", ["not_sent", "unknown"])
def test_a_sender_that_came_back_sends_a_parked_unknown_on_once(outcome: str) -> None:
    world = sagas.World()
    effect = world.effect("any", key_lifetime=None)
    with sagas.trip(world, effect=effect, parks_when_unknown=True) as trip:
        job = parked_unknown(world, trip)
        sight(job, "payment", outcome, fence=1)
        assert sweeps.reconcile().count == 1
        drives.drive_all()
        assert drives.state(job) == "parked"  # its receipt says that it was sent
        assert sweeps.reconcile().count == 0


def test_a_pass_reads_a_slice_and_what_came_while_a_job_was_owned_is_found_after_its_owner_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconcile, "NEWEST", 1)
    monkeypatch.setattr(reconcile, "SLICE", 3)
    passes: list[int] = []
    with sagas.trip(sagas.World()) as trip:
        done = factories.submit(trip)
        drives.drive_all()
        job = factories.submit(trip)

        def see(_point: str) -> None:
            if not passes:
                for n in range(12):
                    sight(done, "room", "confirmed")
                    if n == 5:  # unread by its owner, which will say confirmed
                        sight(job, "room", "refused")
                passes.extend(sweeps.reconcile().count for _ in range(5))

        with crashpoints.armed("settle.after", see):
            drives.drive_all()
        assert (drives.state(job), passes) == ("confirmed", [0] * 5)
        assert sum(sweeps.reconcile().count for _ in range(5)) == 1
    assert models.Job.objects.get(id=job).parked_reason == "contradiction"


def test_evidence_about_an_undo_that_was_given_up_settles_it() -> None:
    world = sagas.World()
    world.says("ticket:forward", sagas.raising(outcomes.Refused("no_seat")))
    world.says("payment:backward", sagas.raising(TimeoutError()))
    with sagas.trip(world, probe=True, undo_attempts=1) as trip:
        world.says("payment:backward:probe", lambda _call: outcomes.NotLanded())
        job = factories.submit(trip)
        drives.drive_all()
        drives.age_journal(job)
        drives.make_due(job)
        world.says("payment:backward:probe", lambda _call: outcomes.NotLanded())
        drives.drive_all()
        assert models.Job.objects.get(id=job).parked_reason == "compensation_failed"
        sight(job, "payment", "confirmed", direction=saga.Direction.BACKWARD)
        assert sweeps.reconcile().count == 1
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert world.times("payment:backward") == 1

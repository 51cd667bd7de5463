"""A claim takes up to the free slots, lowest ranks first, only what this build knows, and never what another took."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from ledger import calls, engine, leases, models, saga, shares, sql, tasks
from ledger.states import JobState
from tests import claims, drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")


def columns(job_id: UUID) -> tuple[str, int]:
    job = models.Job.objects.get(id=job_id)
    return job.state, job.fence


def test_lowest_ranks_go_first_and_slots_are_respected() -> None:
    with sagas.trip(sagas.World()) as trip:
        tenant = factories.TenantFactory.create()
        jobs = [factories.submit(trip, tenant=tenant) for _ in range(5)]
    shares.promote("forward")
    sql.fetch("UPDATE ledger_job SET acting_fence = fence, rank = 100 - rank")
    assert [c.id for c in claims.claim(trip, 2)] == jobs[:2:-1]
    assert [c.id for c in claims.claim(trip, 2)] == jobs[2:0:-1]
    assert [columns(job) for job in jobs] == [("queued", 0), *[("running", 1)] * 4]


def test_a_claim_raises_the_fence_and_sets_a_lease_by_the_databases_clock(settings: Any) -> None:
    with sagas.trip(sagas.World()) as trip:
        claimed = claims.running(trip, {"nights": 2})
    job = models.Job.objects.get(id=claimed.id)
    left = sql.fetch(
        "SELECT extract(epoch FROM lease_until - ledger_now()) FROM ledger_job WHERE id = %s",
        [claimed.id],
    )
    assert (job.state, job.fence, claimed.fence, job.owner) == ("running", 1, 1, leases.owner())
    assert (claimed.input, claimed.saga, claimed.version, claimed.seq) == (
        {"nights": 2},
        trip.name,
        1,
        0,
    )
    assert settings.LEASE_SECONDS - 5 < left[0][0] <= settings.LEASE_SECONDS


def test_versions_that_this_build_does_not_know_are_left_alone() -> None:
    with sagas.trip(sagas.World()) as known:
        newer = saga.Saga(known.name, version=2, steps=known.steps)
        other = saga.Saga("test.other", version=1, steps=known.steps)
        left = [factories.submit(newer), factories.submit(other)]
        mine = factories.submit(known)
        drives.drive_all()
    assert drives.state(mine) == "confirmed"
    assert [columns(job) for job in left] == [("queued", 0)] * 2
    assert {c.id for c in leases.claim("forward", 9, [newer.key, other.key], uuid4())} == set(left)


def test_what_is_not_due_is_not_claimed_until_it_is_even_beside_what_is() -> None:
    with sagas.trip(sagas.World()) as trip:
        later = factories.submit(trip)
        sql.fetch(
            "UPDATE ledger_job SET acting_fence = fence, due_at = ledger_now() + interval '1 hour'"
        )
        due = factories.submit(trip)
    assert [c.id for c in claims.claim(trip, 2)] == [due]
    assert columns(later) == ("waiting", 0)
    drives.make_due(later)
    assert [c.id for c in claims.claim(trip, 2)] == [later]


def test_another_lane_is_not_claimed() -> None:
    with sagas.trip(sagas.World()) as trip:
        job = factories.submit(trip)
    assert claims.claim(trip, lane="compensation") == []
    assert [c.id for c in claims.claim(trip)] == [job]


@pytest.mark.parametrize("state", ["parked", "running"])
def test_only_queued_jobs_are_claimed(state: str) -> None:
    with sagas.trip(sagas.World()) as trip:
        job = claims.running(trip)
        if state == "parked":
            claims.settle(claims.write(job, state=JobState.PARKED, parked_reason="exhausted"))
        assert claims.claim(trip) == []
    assert columns(job.id) == (state, 1)


def test_a_locked_job_is_passed_over_and_not_waited_for() -> None:
    with sagas.trip(sagas.World()) as trip:
        tenant = factories.TenantFactory.create()
        first, second = (factories.submit(trip, tenant=tenant) for _ in range(2))
    shares.promote("forward")
    with psql.connected(autocommit=False) as other:
        other.execute("SELECT 1 FROM ledger_job WHERE id = %s FOR UPDATE", [first])
        assert [c.id for c in claims.claim(trip, 2)] == [second]
    assert [c.id for c in claims.claim(trip, 2)] == [first]


def test_claimers_at_once_never_share_a_job() -> None:
    with sagas.trip(sagas.World()) as trip:
        jobs = {factories.submit(trip) for _ in range(40)}
    shares.promote("forward")
    taken = psql.together(
        8, lambda _n: [leases.claim("forward", 3, [trip.key], uuid4()) for _ in range(4)]
    )
    ids = [c.id for thread in taken for batch in thread for c in batch]
    assert len(ids) == len(set(ids))
    rest = [c.id for c in leases.claim("forward", 64, [trip.key], uuid4())]
    assert {*ids, *rest} == jobs
    assert set(models.Job.objects.values_list("state", "fence")) == {("running", 1)}


def test_a_claim_advances_the_lanes_clock_to_the_greatest_rank_it_took() -> None:
    with sagas.trip(sagas.World()) as trip:
        tenant = factories.TenantFactory.create()
        for _ in range(3):
            factories.submit(trip, tenant=tenant)
    claims.claim(trip, 2)
    assert models.LaneClock.objects.get(lane="forward").clock == 2.0
    assert models.LaneClock.objects.get(lane="compensation").clock == 0.0


def test_ten_workers_on_one_job_run_each_step_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "pool", calls.Pool)  # each run has its own pool, as each process has
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        claimed = psql.together(10, lambda _n: engine.drive("forward"))
    assert sorted(claimed) == [0] * 9 + [1]
    assert drives.state(job) == "confirmed"
    assert world.called == ["room:forward", "payment:forward", "ticket:forward"]
    assert models.Attempt.objects.count() == 3


def test_ten_workers_on_thirty_jobs_run_each_step_of_each_once(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(calls, "pool", calls.Pool)
    settings.SLOTS = 4
    world = sagas.World()
    with sagas.trip(world) as trip:
        jobs = {factories.submit(trip) for _ in range(30)}
        claimed = psql.together(10, lambda _n: engine.drive("forward"))
    assert sum(claimed) == 30
    assert set(models.Job.objects.values_list("state", flat=True)) == {"confirmed"}
    ids = [call.operation_id for call in world.calls]
    assert len(ids) == len(set(ids)) == 3 * len(jobs)


def test_a_ticket_that_comes_again_or_for_nothing_does_no_harm() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        for _ in range(3):
            tasks.drive("forward")
    assert (drives.state(job), len(world.called)) == ("confirmed", 3)

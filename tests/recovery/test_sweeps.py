"""The sweeps: bounded, safe to overlap, and nothing stays stranded that they can see. They never run a job."""

import pytest

from ledger import engine, leases, models, saga, sql
from recovery import sweeps
from tests import drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")


def running(definition: saga.Saga, count: int = 1) -> list[models.Job]:
    """Jobs under a lease of this process, as a worker that died has left them."""
    for _ in range(count):
        factories.submit(definition)
    sweeps.promote()
    token = leases.owner()
    leases.claim("forward", count, [definition.key], token)
    return list(models.Job.objects.filter(state="running").order_by("id"))


def test_an_expired_lease_makes_the_job_runnable_again_and_runs_nothing() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        [job] = running(trip)
        drives.expire_lease(job.id)
        assert sweeps.reclaim() == sweeps.Swept("reclaim", 1)
        again = models.Job.objects.get(id=job.id)
        assert (again.state, again.fence, again.leases_lost) == ("queued", job.fence + 1, 1)
        assert again.rank == job.rank
        assert world.called == []
        drives.drive_all()
    assert drives.state(job.id) == "confirmed"


def test_a_live_lease_is_left_alone() -> None:
    with sagas.trip(sagas.World()) as trip:
        [job] = running(trip)
        assert sweeps.reclaim() == sweeps.Swept("reclaim", 0)
    assert models.Job.objects.get(id=job.id).fence == job.fence


def test_a_sweep_that_overlaps_another_skips_and_the_next_one_finds_the_rest() -> None:
    with sagas.trip(sagas.World()) as trip, psql.connected(autocommit=False) as other:
        [job] = running(trip)
        drives.expire_lease(job.id)
        other.execute("SELECT pg_advisory_xact_lock(%s, 1)", [sweeps.ADVISORY_CLASS])
        assert sweeps.reclaim() == sweeps.Swept("reclaim", 0, skipped=True)
        other.rollback()
        assert sweeps.reclaim() == sweeps.Swept("reclaim", 1)


def test_one_locked_row_stops_nobody() -> None:
    with sagas.trip(sagas.World()) as trip, psql.connected(autocommit=False) as other:
        jobs = running(trip, 3)
        for job in jobs:
            drives.expire_lease(job.id)
        other.execute("SELECT 1 FROM ledger_job WHERE id = %s FOR UPDATE", [jobs[1].id])
        assert sweeps.reclaim().count == 2
        other.rollback()
        assert sweeps.reclaim().count == 1


def test_promotion_ranks_what_is_due_and_nothing_else() -> None:
    with sagas.trip(sagas.World()) as trip:
        due, later = factories.submit(trip), factories.submit(trip)
        sql.fetch(
            "UPDATE ledger_job SET acting_fence = fence, due_at = ledger_now() + interval '1 hour' WHERE id = %s",
            [later],
        )
        assert sweeps.promote() == sweeps.Swept("promote", 1)
        assert sweeps.promote() == sweeps.Swept("promote", 0)
    assert (drives.state(due), drives.state(later)) == ("queued", "waiting")


def test_the_ring_sweep_sees_lanes_with_work_and_no_others() -> None:
    with sagas.trip(sagas.World()) as trip:
        assert sweeps.ring() == sweeps.Swept("ring", 0)
        factories.submit(trip)
        assert sweeps.ring() == sweeps.Swept("ring", 1)
        drives.drive_all()
        assert sweeps.ring() == sweeps.Swept("ring", 0)


def test_with_every_ticket_lost_the_sweeps_and_a_run_finish_everything() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        jobs = [factories.submit(trip) for _ in range(5)]
        sweeps.promote()
        engine.drive("forward")
    assert [drives.state(job) for job in jobs] == ["confirmed"] * 5

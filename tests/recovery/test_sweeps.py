"""The sweeps: bounded, safe to overlap, and nothing stays stranded that they can see. They never run a job."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import psycopg
import pytest
from django.db import InternalError, OperationalError

from config.settings import database
from ledger import crashpoints, engine, guards, leases, models, saga, sql, tickets
from ledger.watch import Swept
from recovery import sweeps
from tests import claims, drives, factories, psql, sagas, stops
from tests.conftest import Roles
from tests.recovery import test_sweeps_bad_rows as bad_rows

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
        assert sweeps.reclaim() == Swept("reclaim", 1)
        again = models.Job.objects.get(id=job.id)
        assert (again.state, again.fence, again.leases_lost) == ("queued", job.fence + 1, 1)
        assert again.rank == job.rank
        assert world.called == []
        drives.drive_all()
    assert drives.state(job.id) == "confirmed"


def test_a_live_lease_is_left_alone() -> None:
    with sagas.trip(sagas.World()) as trip:
        [job] = running(trip)
        assert sweeps.reclaim() == Swept("reclaim", 0)
    assert models.Job.objects.get(id=job.id).fence == job.fence


def test_a_sweep_that_overlaps_another_skips_and_the_next_one_finds_the_rest() -> None:
    with sagas.trip(sagas.World()) as trip, psql.connected(autocommit=False) as other:
        [job] = running(trip)
        drives.expire_lease(job.id)
        other.execute("SELECT pg_advisory_xact_lock(%s, 1)", [sweeps.ADVISORY_CLASS])
        assert sweeps.reclaim() == Swept("reclaim", 0, skipped=True)
        other.rollback()
        assert sweeps.reclaim() == Swept("reclaim", 1)


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
        assert sweeps.promote() == Swept("promote", 1)
        assert sweeps.promote() == Swept("promote", 0)
    assert (drives.state(due), drives.state(later)) == ("queued", "waiting")


def test_the_ring_sweep_sees_lanes_with_work_and_no_others() -> None:
    with sagas.trip(sagas.World()) as trip:
        assert sweeps.ring() == Swept("ring", 0)
        factories.submit(trip)
        assert sweeps.ring() == Swept("ring", 1)
        drives.drive_all()
        assert sweeps.ring() == Swept("ring", 0)


def test_with_every_ticket_lost_the_sweeps_and_a_run_finish_everything() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        jobs = [factories.submit(trip) for _ in range(5)]
        sweeps.promote()
        engine.drive("forward")
    assert [drives.state(job) for job in jobs] == ["confirmed"] * 5


def test_what_waits_is_no_message_however_much_it_is() -> None:
    """Nobody holds in memory what is not due; and when all of it comes due at once, a lane is rung and not each job."""
    rung: list[str] = []
    with sagas.trip(sagas.World()) as trip:
        for _ in range(200):
            factories.submit(trip)
        due = "UPDATE ledger_job SET acting_fence = fence, due_at = ledger_now() + interval %s"
        sql.fetch(due, ["1 hour"])
        with tickets.heard_by(rung.append):
            for _ in range(3):
                one_pass()
            assert engine.drive("forward") == 0
            assert rung == []
            sql.fetch(due, ["-1 hour"])
            one_pass()
    assert 1 <= len(rung) <= 2
    assert models.Job.objects.filter(state="queued").count() == 200


def one_pass() -> None:
    for sweep in (
        sweeps.reclaim,
        sweeps.expire_deadlines,
        sweeps.reconcile,
        sweeps.promote,
        sweeps.ring,
    ):
        sweep()


# --- Two sweeps, late rows, a restart ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "sweep"),
    [
        ("turn.before", sweeps.expire_deadlines),
        ("reconcile.before", sweeps.reconcile),
        ("promote.before", sweeps.promote),
        ("overdue.before", sweeps.park_overdue),
    ],
)
def test_of_two_sweeps_the_one_that_was_held_up_does_nothing_again(
    as_role: Roles, point: str, sweep: Callable[[], Swept]
) -> None:
    """Whatever it had seen before it stood still: it acts on rows as they are when it acts."""
    with sagas.trip(sagas.World()) as trip:
        ready = MAKES[point](trip)
        with stops.at(point) as (come, may_go):
            first = psql.Thread(sweep)
            assert come.wait(psql.WAIT_SECONDS)
            assert sweep().count == 1
            after = models.Job.objects.values().get(id=ready)
            may_go.set()
            assert first.result().count == 0
    assert models.Job.objects.values().get(id=ready) == after


MAKES: dict[str, Callable[[saga.Saga], UUID]] = {
    "turn.before": bad_rows.past_deadline,
    "reconcile.before": bad_rows.contradicted,
    "promote.before": bad_rows.due,
    "overdue.before": bad_rows.past_pivot,
}


def test_a_job_that_was_claimed_this_very_moment_is_left_alone() -> None:
    """What decides is the lease, never the age of a job."""
    with sagas.trip(sagas.World()) as trip:
        [job] = running(trip)
        drives.moved(job.id, "due_at = ledger_now() - interval '1 day'")
        before = models.Job.objects.values().get(id=job.id)
        assert sweeps.reclaim().count == 0
    assert models.Job.objects.values().get(id=job.id) == before


@contextmanager
def time_stands_still() -> Iterator[None]:
    """Within the block the database's clock shows one moment."""
    with psql.connected() as owner:
        stopped = guards.LEDGER_NOW.replace("clock_timestamp()", "%s::timestamptz")
        (now,) = owner.execute("SELECT clock_timestamp()").fetchone() or (None,)
        psycopg.ClientCursor(owner).execute(stopped, [now])
        try:
            yield
        finally:
            owner.execute(guards.LEDGER_NOW)


def test_what_was_accepted_and_claimed_at_the_moment_of_a_sweep_is_not_for_it() -> None:
    """Its worker is at its first step. Nothing is decided by when a job was made, to whatever part of a second."""
    with sagas.trip(sagas.World()) as trip, time_stands_still():
        job = claims.running(trip)
        claims.settle(claims.write(job, attempts=[claims.attempt()]))
        before = claims.snapshot(job.id)
        assert before[0]["created_at"] == before[0]["due_at"] == job.now
        one_pass()
        assert claims.snapshot(job.id) == before
        drives.moved(job.id, "lease_until = ledger_now()")
        assert sweeps.reclaim().count == 0
        drives.moved(job.id, "lease_until = ledger_now() - interval '1 us'")
        assert sweeps.reclaim().count == 1


def test_a_row_that_commits_late_is_found_by_the_next_pass() -> None:
    """No pass goes on from where another one ended: the row with the lower id comes last, and is not passed over."""
    with sagas.trip(sagas.World()) as trip, psql.connected(autocommit=False) as slow:
        tenant = factories.TenantFactory.create()
        values = (tenant.id, trip.name, trip.version)
        slow.execute(
            "INSERT INTO ledger_job (tenant_id, saga, version, input, lane) VALUES (%s, %s, %s, '{}', 'forward')",
            values,
        )
        later = factories.submit(trip)
        assert sweeps.promote().count == 1
        slow.commit()
        assert sweeps.promote().count == 1
    assert models.Job.objects.filter(state="queued").count() == 2
    assert models.Job.objects.order_by("id").last() == models.Job.objects.get(id=later)


@pytest.mark.parametrize("point", ["reclaim.before", "reclaim.after"])
def test_a_database_that_goes_away_in_the_middle_loses_nothing_to_the_next_pass(point: str) -> None:
    """What was given back stays so, the rest is found again, and no lock is left."""

    def cut(_point: str) -> None:
        psql.cut([psql.pid()])

    with sagas.trip(sagas.World()) as trip:
        jobs = running(trip, 3)
        for job in jobs:
            drives.expire_lease(job.id)
        with crashpoints.armed(point, cut):
            if point == "reclaim.before":
                with pytest.raises(OperationalError):
                    sweeps.reclaim()
            else:
                assert sweeps.reclaim().count == 3
        sql.replace_connection()  # as whoever runs a sweep does after an error
        found = sweeps.reclaim()
        assert not found.skipped
        assert models.Job.objects.filter(state="queued", leases_lost=1).count() == 3


UNLOCKED = """
SELECT NOT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.classid = %s)
"""
IDLE = "idle_in_transaction_session_timeout"


def test_a_pass_that_stands_still_with_its_lock_is_ended_by_the_server() -> None:
    """It is not dead, so that nobody gives its lock back, but for a limit that each session of a worker begins with."""
    assert f"-c {IDLE}=60000" in database("worker")["OPTIONS"]["options"]

    def shorten(_point: str) -> None:
        sql.fetch(f"SET {IDLE} = '100ms'")

    with sagas.trip(sagas.World()) as trip, psql.connected() as watch:
        [job] = running(trip)
        drives.expire_lease(job.id)
        with stops.at("reclaim.before", before=shorten) as (come, may_go):
            stands_still = psql.Thread(sweeps.reclaim)
            assert come.wait(psql.WAIT_SECONDS)
            psql.await_true(watch, UNLOCKED, [sweeps.ADVISORY_CLASS])
            assert sweeps.reclaim() == Swept("reclaim", 1)
            may_go.set()
            with pytest.raises(InternalError, match="idle-in-transaction timeout"):
                stands_still.result()
    found = models.Job.objects.get(id=job.id)
    assert (found.state, found.fence, found.leases_lost) == ("queued", job.fence + 1, 1)

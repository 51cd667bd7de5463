"""A cancel or a deadline against the pivot: one conditional update decides, and nothing goes back past the pivot."""

from datetime import timedelta
from uuid import UUID

import pytest

from ledger import models, outcomes, submission, turns
from recovery import sweeps
from tests import drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")


def cancel(job: UUID) -> bool:
    return turns.cancel(job, by="client", reason="changed plans")


def test_a_cancelled_job_that_nobody_runs_ends_refused_without_a_call() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        assert cancel(job)
        row = models.Job.objects.get(id=job)
        assert (row.state, row.lane, row.direction) == ("waiting", "compensation", "backward")
        assert (row.turned_by, row.fence, row.seq) == ("client", 0, 0)
        drives.drive_all()
    assert drives.state(job) == "refused"
    assert world.called == []


def test_a_cancel_while_the_payment_is_under_way_is_found_out_and_undone() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        accepted: list[bool] = []

        def cancel_meanwhile(call: object) -> outcomes.Confirmed:
            # A call thread has no database: another session says it, as the API would.
            with psql.connected() as other:
                statement = turns.TURN.format(which="id = %(job)s", skip="")
                params = {"job": job, "limit": 1, "by": "client", "reason": "changed plans"}
                accepted.append(bool(other.execute(statement, params).fetchall()))
            return outcomes.Confirmed(ref="cap_1")

        world.says("payment:forward", cancel_meanwhile)
        drives.drive_all()
    assert accepted == [True]
    assert drives.state(job) == "compensated"
    assert world.called == [
        "room:forward",
        "payment:forward",
        "payment:backward",
        "room:backward",
    ]


def test_a_cancel_after_the_pivot_was_sent_is_refused_and_changes_nothing() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        world.says("ticket:forward", *[sagas.raising(TimeoutError())] * 5)  # the whole budget
        drives.drive_all()
        before = models.Job.objects.values().get(id=job)
        assert before["pivot_sent"] is True
        assert not cancel(job)
    assert models.Job.objects.values().get(id=job) == before


@pytest.mark.parametrize("ended", ["confirmed", "refused"])
def test_a_cancel_of_an_ended_job_is_refused(ended: str) -> None:
    world = sagas.World()
    if ended == "refused":
        world.says("room:forward", sagas.raising(outcomes.Refused("sold_out")))
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        drives.drive_all()
        assert not cancel(job)
    assert drives.state(job) == ended


def test_a_second_cancel_is_refused() -> None:
    with sagas.trip(sagas.World()) as trip:
        job = factories.submit(trip)
        assert [cancel(job), cancel(job)] == [True, False]


def test_a_passed_deadline_turns_the_job_back_and_a_coming_one_does_not() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        tenant = factories.TenantFactory.create()
        late, early = (
            submission.submit(
                tenant_id=tenant.id, key=key, saga=trip, request={}, input={}, deadline=deadline
            ).job_id
            for key, deadline in (("a", timedelta(seconds=-1)), ("b", timedelta(hours=1)))
        )
        assert sweeps.expire_deadlines().count == 1
        assert sweeps.expire_deadlines().count == 0
        drives.drive_all()
    assert (drives.state(late), drives.state(early)) == ("refused", "confirmed")
    assert models.Job.objects.get(id=late).turned_by == "deadline"

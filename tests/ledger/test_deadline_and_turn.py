"""A cancel or a passed deadline turns a job without taking it from its owner: receipts are stored, nothing new is started
forward, and past the pivot it is refused.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger import (
    crashpoints,
    engine,
    leases,
    models,
    outcomes,
    saga,
    shares,
    sql,
    submission,
    turns,
)
from ledger.saga import Call
from recovery import sweeps
from tests import claims, drives, factories, lost_replies, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")


def job(job_id: UUID) -> models.Job:
    return models.Job.objects.get(id=job_id)


def cancel(job_id: UUID) -> bool:
    return turns.cancel(job_id, by="guest", reason="changed plans")


def turning(call: Call) -> outcomes.Confirmed:
    assert claims.turn(call.job_id) == 1
    return sagas.confirm(call)


def test_a_job_turned_while_its_call_is_out_stores_the_receipt_and_starts_nothing_forward() -> None:
    world = sagas.World()
    world.says("payment:forward", turning)
    with sagas.trip(world) as trip:
        id_ = factories.submit(trip)
        engine.drive("forward")
        after = job(id_)
        assert (after.state, after.lane, after.direction) == ("waiting", "compensation", "backward")
        assert (after.fence, after.leases_lost, after.turned_by) == (1, 0, "guest")
        assert drives.receipts(id_)[-1] == ("payment", "forward", "confirmed")
        assert world.called == ["room:forward", "payment:forward"]
        engine.drive("compensation")
    assert drives.state(id_) == "compensated"
    assert world.called[2:] == ["payment:backward", "room:backward"]


@pytest.mark.parametrize(
    ("ending", "undone", "state"),
    [
        (outcomes.Refused("no"), ["room:backward"], "compensated"),
        (outcomes.NotSent("dns"), ["room:backward"], "compensated"),
        (
            TimeoutError(),
            [],
            "parked",
        ),  # in doubt: it holds up earlier undos, and is not sent again
    ],
)
def test_whatever_the_call_brings_back_is_stored_and_judged_going_backward(
    ending: Exception, undone: list[str], state: str
) -> None:
    def turned(call: Call) -> outcomes.Confirmed:
        claims.turn(call.job_id)
        raise ending

    world = sagas.World()
    world.says("payment:forward", turned)
    with sagas.trip(world) as trip:
        id_ = factories.submit(trip)
        drives.drive_all()
    assert world.called == ["room:forward", "payment:forward", *undone]
    assert drives.state(id_) == state


def test_a_job_turned_before_its_first_call_ends_refused_without_any() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        id_ = factories.submit(trip)
        with crashpoints.armed("settle.before", lambda _p: _once(id_)):
            drives.drive_all()
    assert (drives.state(id_), world.called, drives.receipts(id_)) == ("refused", [], [])


def _once(id_: UUID) -> None:
    if job(id_).state == "running":
        cancel(id_)


@pytest.mark.parametrize("state", ["waiting", "queued"])
def test_a_job_that_nobody_runs_moves_to_the_compensation_lane_due_now(state: str) -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        id_ = factories.submit(trip)
        if state == "queued":
            shares.promote("forward")
        assert cancel(id_)
        after = job(id_)
        assert (after.state, after.lane, after.fence, after.seq) == (
            "waiting",
            "compensation",
            0,
            0,
        )
        assert (after.turned_by, after.turned_reason) == ("guest", "changed plans")
        drives.drive_all()
    assert (drives.state(id_), world.called) == ("refused", [])


def local_trip(world: sagas.World) -> saga.Saga:
    local: dict[str, Any] = {"effect": saga.LOCAL, "undo_effect": saga.LOCAL}
    steps = [sagas.step(world, name, **local) for name in ("room", "payment")]
    return saga.Saga("test.local", version=1, steps=steps)


@pytest.mark.parametrize("heartbeat", [0.0, 5.0])  # the owner hears of it by a renewal, or not
@pytest.mark.parametrize(("point", "forward"), [("local.before", 0), ("local.after", 1)])
def test_a_local_step_is_turned_like_any_other_and_keeps_its_owner(
    point: str, forward: int, heartbeat: float, settings: Any
) -> None:
    settings.HEARTBEAT_SECONDS = heartbeat
    world = sagas.World()
    with sagas.registered(local_trip(world)) as definition:
        id_ = factories.submit(definition)
        with crashpoints.armed(point, lambda _p: _once(id_)):
            engine.drive("forward")
        drives.drive_all()
    assert world.called == ["room:forward"] * forward + ["room:backward"] * forward
    assert drives.state(id_) == ("compensated" if forward else "refused")
    assert job(id_).leases_lost == 0


def test_a_local_step_is_not_run_when_the_job_was_turned_behind_a_lost_reply() -> None:
    world = sagas.World()
    local: dict[str, Any] = {"effect": saga.LOCAL, "undo_effect": saga.LOCAL}
    steps = [sagas.step(world, "room"), sagas.step(world, "badge", **local)]
    with sagas.registered(saga.Saga("test.late", version=1, steps=steps)) as definition:
        id_ = factories.submit(definition)
        settle = "INSERT INTO ledger_receipt"
        with lost_replies.dying(settle, "after", 2, meanwhile=lambda: claims.turn(id_)) as ended:
            engine.drive("forward")
        drives.drive_all()
    assert ended == ["after"]
    assert world.called == ["room:forward", "room:backward"]
    assert drives.state(id_) == "compensated"


def refusing(call: Call) -> outcomes.Confirmed:
    assert claims.turn(call.job_id) == 0
    return sagas.confirm(call)


def test_past_the_point_of_no_return_nothing_turns() -> None:
    world = sagas.World()
    world.says("ticket:forward", refusing)
    with sagas.trip(world) as trip:
        id_ = factories.submit(trip)
        drives.drive_all()
        assert not cancel(id_)
    assert (drives.state(id_), job(id_).turned_by) == ("confirmed", "")
    assert world.called == ["room:forward", "payment:forward", "ticket:forward"]


@pytest.mark.parametrize(
    ("ending", "turned"), [(outcomes.NotSent("dns"), True), (TimeoutError(), False)]
)
def test_a_pivot_that_was_certainly_not_sent_can_be_cancelled_and_one_in_doubt_cannot(
    ending: Exception, settings: Any, *, turned: bool
) -> None:
    settings.BACKOFF_SECONDS = 60.0
    world = sagas.World()
    world.says("ticket:forward", sagas.raising(ending))
    with sagas.trip(world) as trip:
        id_ = factories.submit(trip)
        drives.drive_all()
        assert (drives.state(id_), job(id_).pivot_sent) == ("waiting", not turned)
        assert cancel(id_) is turned
        settings.BACKOFF_SECONDS = 0.0
        drives.make_due(id_)
        drives.drive_all()
    assert drives.state(id_) == ("compensated" if turned else "confirmed")


def _ended(trip: saga.Saga) -> UUID:
    id_ = factories.submit(trip)
    drives.drive_all()
    return id_


def _parked(trip: saga.Saga) -> UUID:
    claimed = claims.running(trip)
    sql.fetch(
        "UPDATE ledger_job SET acting_fence = fence, state = 'parked', parked_reason = 'exhausted',"
        " parked_at = ledger_now(), owner = NULL, lease_until = NULL WHERE id = %s",
        [claimed.id],
    )
    return claimed.id


def _turned(trip: saga.Saga) -> UUID:
    id_ = factories.submit(trip)
    assert cancel(id_)
    return id_


@pytest.mark.parametrize("made", [_ended, _parked, _turned])
def test_what_has_ended_is_parked_or_goes_back_already_is_not_turned(
    made: Callable[[saga.Saga], UUID],
) -> None:
    with sagas.trip(sagas.World()) as trip:
        id_ = made(trip)
    before = claims.snapshot(id_)
    assert not cancel(id_)
    assert claims.snapshot(id_) == before


def test_a_cancel_and_the_pivot_at_one_moment_have_one_winner() -> None:
    """The owner writes its pivot attempt while the cancel is not committed yet: whoever commits first wins."""
    world = sagas.World()
    with sagas.trip(world) as trip:
        claimed = claims.running(trip)
    write = claims.write(claimed, attempts=[claims.attempt("ticket")], pivot_sent=True)
    with psql.connected(autocommit=False) as other, psql.connected() as watch:
        other.execute(
            "UPDATE ledger_job SET acting_fence = fence, direction = 'backward'"
            " WHERE id = %s AND direction = 'forward' AND NOT pivot_sent",
            [claimed.id],
        )
        settling = psql.Thread(lambda: claims.settle(write))
        psql.await_lock_wait(watch)
        other.commit()
        assert settling.result() == ["applied"]
    assert (claims.rows(claimed.id)["attempt"], job(claimed.id).pivot_sent) == (0, False)
    assert job(claimed.id).direction == "backward"


def with_deadline(trip: saga.Saga, deadline: timedelta) -> UUID:
    tenant = factories.TenantFactory.create()
    return submission.submit(
        tenant_id=tenant.id, key="k", saga=trip, request={}, input={}, deadline=deadline
    ).job_id


def pass_deadline(id_: UUID) -> None:
    sql.fetch(
        "UPDATE ledger_job SET acting_fence = fence, deadline_at = ledger_now() - interval '1 s' WHERE id = %s",
        [id_],
    )


def test_a_passed_deadline_turns_a_job_and_one_to_come_does_not() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        late, early = (
            with_deadline(trip, timedelta(hours=1)),
            with_deadline(trip, timedelta(hours=1)),
        )
        pass_deadline(late)
        assert turns.expire_deadlines(10) == 1
        assert turns.expire_deadlines(10) == 0
        drives.drive_all()
    assert (drives.state(late), job(late).turned_by) == ("refused", "deadline")
    assert (drives.state(early), job(early).turned_by) == ("confirmed", "")


def test_deadlines_are_turned_in_bounded_batches() -> None:
    with sagas.trip(sagas.World()) as trip:
        for _ in range(5):
            pass_deadline(with_deadline(trip, timedelta(hours=1)))
    assert [turns.expire_deadlines(2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_deadline_passes_over_a_job_that_is_being_written() -> None:
    with sagas.trip(sagas.World()) as trip:
        busy, free = (with_deadline(trip, timedelta(hours=1)) for _ in range(2))
        pass_deadline(busy)
        pass_deadline(free)
    with psql.connected(autocommit=False) as other:
        other.execute("SELECT 1 FROM ledger_job WHERE id = %s FOR UPDATE", [busy])
        assert turns.expire_deadlines(10) == 1
    assert (job(busy).direction, job(free).direction) == ("forward", "backward")


def test_the_owner_of_a_turned_job_that_dies_is_followed_in_the_compensation_lane() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        claimed = claims.running(trip)
        claims.settle(
            claims.write(claimed, attempts=[claims.attempt()], receipts=[claims.receipt()])
        )
        assert cancel(claimed.id)
        assert job(claimed.id).state == "running"
        drives.expire_lease(claimed.id)
        assert leases.reclaim(10) == {"compensation": 1}
        assert sweeps.promote().count == 1
        drives.drive_all()
    assert (world.called, drives.state(claimed.id)) == (["room:backward"], "compensated")

"""What the engine makes of each ending of a call, going forward and backward: nothing is guessed."""

from datetime import timedelta

import pytest

from ledger import clock, engine, journal, models, outcomes
from tests import drives, factories, sagas

pytestmark = pytest.mark.usefixtures("worker_role")


def test_all_confirmed_ends_confirmed_with_one_attempt_each() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        drives.drive_all()
    assert drives.state(job) == "confirmed"
    assert world.called == ["room:forward", "payment:forward", "ticket:forward"]
    assert models.Attempt.objects.filter(job_id=job).count() == 3


def test_a_refusal_at_the_first_step_ends_refused_without_an_undo() -> None:
    world = sagas.World()
    world.says("room:forward", sagas.raising(outcomes.Refused("sold_out")))
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        drives.drive_all()
    assert drives.state(job) == "refused"
    assert world.called == ["room:forward"]


def test_a_refused_pivot_is_undone_in_reverse_order_in_the_compensation_lane() -> None:
    world = sagas.World()
    world.says("ticket:forward", sagas.raising(outcomes.Refused("no_seat")))
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert world.called[3:] == ["payment:backward", "room:backward"]
    assert models.Job.objects.get(id=job).lane == "compensation"
    assert models.Job.objects.get(id=job).pivot_sent is False


def test_an_unknown_outcome_is_sent_again_under_the_same_id_with_the_same_arguments() -> None:
    world = sagas.World()
    world.says("payment:forward", sagas.raising(TimeoutError("read timed out")))
    with sagas.trip(world) as trip:
        job = factories.submit(trip, {"amount_minor": 12_000})
        drives.drive_all()
    assert drives.state(job) == "confirmed"
    first, second = [c for c in world.calls if ":payment:" in c.operation_id]
    assert (first.operation_id, first.arguments) == (second.operation_id, second.arguments)
    assert (first.n, second.n) == (1, 2)


def test_a_probe_that_says_landed_confirms_without_a_second_send() -> None:
    world = sagas.World()
    world.says("payment:forward", sagas.raising(TimeoutError()))
    world.says("payment:forward:probe", lambda _call: outcomes.Confirmed(ref="cap_1"))
    with sagas.trip(world, probe=True) as trip:
        job = factories.submit(trip)
        drives.drive_all()
    assert drives.state(job) == "confirmed"
    assert world.times("payment:forward") == 1
    assert drives.receipts(job)[1:3] == [
        ("payment", "forward", "unknown"),
        ("payment", "forward", "confirmed"),
    ]


def test_a_probe_that_says_not_landed_is_followed_by_the_same_id_again() -> None:
    world = sagas.World()
    world.says("payment:forward", sagas.raising(TimeoutError()))
    world.says("payment:forward:probe", lambda _call: outcomes.NotLanded())
    with sagas.trip(world, probe=True) as trip:
        job = factories.submit(trip)
        drives.drive_all()
    assert drives.state(job) == "confirmed"
    assert world.times("payment:forward") == 2


def test_unknown_past_the_key_lifetime_parks_and_is_not_sent_again() -> None:
    world = sagas.World()
    world.says("payment:forward", sagas.raising(TimeoutError()))
    short = world.effect("payment", key_lifetime=timedelta(microseconds=1))
    with sagas.trip(world, effect=short) as trip:
        job = factories.submit(trip)
        drives.drive_all()
    row = models.Job.objects.get(id=job)
    assert (row.state, row.parked_reason) == ("parked", "unknown_outcome")
    assert world.times("payment:forward") == 1


def test_throttled_sets_the_due_time_and_uses_no_budget() -> None:
    world = sagas.World()
    throttled = sagas.raising(outcomes.Throttled(timedelta(seconds=30)))
    world.says("payment:forward", *[throttled] * 7)
    with sagas.trip(world, attempts=2) as trip:
        job = factories.submit(trip)
        for _ in range(7):
            drives.drive_all()
            assert drives.state(job) == "waiting"
            drives.make_due(job)
            drives.age_journal(job)
        drives.drive_all()
    assert drives.state(job) == "confirmed"


def test_not_sent_until_the_budget_is_spent_goes_backward() -> None:
    world = sagas.World()
    world.says("payment:forward", *[sagas.raising(outcomes.NotSent("connection_refused"))] * 2)
    with sagas.trip(world, attempts=2) as trip:
        job = factories.submit(trip)
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert world.called[-1] == "room:backward"
    assert world.times("payment:backward") == 0


def test_a_refused_undo_parks_and_is_not_repeated_while_the_other_undo_runs() -> None:
    world = sagas.World()
    world.says("ticket:forward", sagas.raising(outcomes.Refused("no_seat")))
    world.says("payment:backward", sagas.raising(outcomes.Refused("disputed")))
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        drives.drive_all()
    row = models.Job.objects.get(id=job)
    assert (row.state, row.parked_reason) == ("parked", "compensation_failed")
    assert world.times("payment:backward") == 1
    assert world.times("room:backward") == 1


def test_a_wait_counts_from_when_it_was_stored_not_from_what_this_process_thinks_the_time_is() -> (
    None
):
    """A process that stood still believes that it is earlier than it is; what it holds then says what the rows say."""
    world = sagas.World()
    world.says("room:forward", sagas.raising(outcomes.Throttled(timedelta(seconds=30))))
    with sagas.trip(world) as trip:
        job_id = factories.submit(trip)
        run = engine.Run("forward")
        run.claim()
        held = run.held[job_id]
        run.settle()
        held._clock = (held.claimed.now - timedelta(hours=1), clock.monotonic())
        while held.awaits is not None:
            run.take_in()
        assert held.news[-1].at < held.claimed.now
        run.settle()
        stored = journal.read([job_id])[job_id]
        assert [type(entry).__name__ for entry in stored] == ["Attempt", "Receipt"]
        assert max(abs(a.at - b.at) for a, b in zip(stored, held.entries, strict=True)) < timedelta(
            seconds=1
        )
        assert job_id not in run.held
        assert drives.state(job_id) == "waiting"

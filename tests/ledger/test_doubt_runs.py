"""Operations in doubt, through the real engine: what is asked, buried, waited for, and what turns up late."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger import leases, models, operations, outcomes, saga, selectors, sightings, turns
from ledger.saga import Call, Direction
from recovery import sweeps
from tests import claims, drives, factories, sagas

pytestmark = pytest.mark.usefixtures("worker_role")

FORWARD = Direction.FORWARD


def job(job_id: UUID) -> models.Job:
    return models.Job.objects.get(id=job_id)


def turned(call: Call) -> outcomes.Confirmed:
    """The call is on the wire when its job is cancelled, and nobody hears what becomes of it."""
    assert claims.turn(call.job_id) == 1
    raise TimeoutError


def landed(call: Call) -> outcomes.Confirmed:
    return outcomes.Confirmed(ref="cap_1")


def not_landed(call: Call) -> outcomes.NotLanded:
    return outcomes.NotLanded()


def says(
    world: sagas.World, answer: Callable[..., Any], *, of: str = "payment:forward:probe"
) -> None:
    world.says(of, answer)


def effects(world: sagas.World, *promises: str, **options: Any) -> dict[str, saga.Effect]:
    """The payment's effect: what it can be asked, as the world answers."""
    asked = {name: world.handle(f"payment:forward:{name}") for name in promises}
    return {"effect": world.effect("payment", **asked, **options)}


def trip(world: sagas.World, **payment: Any) -> saga.Saga:
    steps = [sagas.step(world, "room"), sagas.step(world, "payment", **payment)]
    steps.append(sagas.step(world, "ticket", pivot=True, undo=saga.NotUndoable("last step")))
    return saga.Saga(f"test.doubt.{id(world)}", version=1, steps=steps)


def run(definition: saga.Saga) -> UUID:
    job_id = factories.submit(definition)
    drives.drive_all()
    return job_id


def test_a_cancelled_call_that_may_be_on_the_wire_is_buried_and_earlier_steps_are_undone() -> None:
    world = sagas.World()
    world.says("payment:forward", turned)
    says(world, not_landed)
    says(world, sagas.raising(outcomes.Refused("tombstoned")), of="payment:forward:tombstone")
    with sagas.registered(trip(world, **effects(world, "probe", "tombstone"))) as definition:
        job_id = run(definition)
    assert drives.state(job_id) == "compensated"
    assert world.called[1:] == [
        "payment:forward",
        "payment:forward:probe",
        "payment:forward:tombstone",
        "room:backward",
    ]
    operation = operations.fold(selectors.entries(job_id))["payment", FORWARD]
    assert operation.is_refused()
    assert operation.final is not None
    assert operation.final.evidence["seen_by"] == "tombstone"


def test_a_tombstone_that_comes_too_late_finds_the_effect_and_it_is_undone() -> None:
    world = sagas.World()
    world.says("payment:forward", turned)
    says(world, not_landed)
    says(world, landed, of="payment:forward:tombstone")
    with sagas.registered(trip(world, **effects(world, "probe", "tombstone"))) as definition:
        job_id = run(definition)
    assert drives.state(job_id) == "compensated"
    assert world.called[-2:] == ["payment:backward", "room:backward"]


@pytest.mark.parametrize(
    ("answer", "undone", "payment"),
    [
        (landed, ["payment:backward", "room:backward"], "confirmed"),
        (not_landed, ["room:backward"], "refused"),
    ],
)
def test_without_a_tombstone_the_job_ends_only_after_a_probe_later_than_the_request_lifetime(
    answer: Callable[..., Any], undone: list[str], payment: str
) -> None:
    world = sagas.World()
    world.says("payment:forward", turned)
    says(world, not_landed)
    with sagas.registered(trip(world, **effects(world, "probe"))) as definition:
        job_id = run(definition)
        waits = job(job_id)
        assert (waits.state, waits.lane) == ("waiting", "compensation")
        assert waits.due_at - waits.created_at > timedelta(minutes=1)
        assert world.times("room:backward") == 0
        says(world, answer)
        drives.age_journal(job_id)
        drives.make_due(job_id)
        drives.drive_all()
    assert drives.state(job_id) == "compensated"
    assert world.called[-len(undone) :] == undone
    assert world.times("payment:forward") == 1
    assert ("payment", "forward", payment) in drives.receipts(job_id)


def test_what_shows_up_after_the_end_is_a_contradiction() -> None:
    world = sagas.World()
    world.says("payment:forward", turned)
    says(world, not_landed)
    with sagas.registered(trip(world, **effects(world, "probe"))) as definition:
        job_id = run(definition)
        drives.age_journal(job_id)
        drives.make_due(job_id)
        says(world, not_landed)
        drives.drive_all()
        assert drives.state(job_id) == "compensated"
        late = sightings.NewSighting(
            job_id, "payment", FORWARD, 1, "late", "confirmed", {"ref": "cap_1"}
        )
        sightings.record([late])
        assert sweeps.reconcile().count == 1
    assert (job(job_id).state, job(job_id).parked_reason) == ("parked", "contradiction")
    assert world.times("payment:backward") == 0


def test_without_a_key_it_is_sent_again_only_after_a_late_negative_probe() -> None:
    world = sagas.World()
    world.says("payment:forward", sagas.raising(TimeoutError()))
    says(world, not_landed)
    keyless = effects(world, "probe", key_lifetime=None)
    with sagas.registered(trip(world, **keyless)) as definition:
        job_id = run(definition)
        assert job(job_id).state == "waiting"
        assert world.times("payment:forward") == 1
        says(world, not_landed)
        drives.age_journal(job_id)
        drives.make_due(job_id)
        drives.drive_all()
    assert drives.state(job_id) == "confirmed"
    first, second = [c for c in world.calls if c.operation_id.endswith("payment:forward")][::3]
    assert (first.operation_id, first.arguments) == (second.operation_id, second.arguments)


def test_a_step_that_can_be_neither_repeated_nor_asked_about_is_never_repeated() -> None:
    world = sagas.World()
    world.says("payment:forward", sagas.raising(TimeoutError()))
    neither = {**effects(world, key_lifetime=None), "parks_when_unknown": True}
    with sagas.registered(trip(world, **neither)) as definition:
        job_id = run(definition)
    assert (job(job_id).state, job(job_id).parked_reason) == ("parked", "unknown_outcome")
    assert job(job_id).parked_detail.endswith("it can be neither sent again nor asked about")
    assert world.times("payment:forward") == 1


def test_resend_to_learn_sends_the_same_again_and_undoes_what_it_learns() -> None:
    world = sagas.World()
    world.says("payment:forward", turned)
    with sagas.registered(trip(world, **effects(world, resend_to_learn=True))) as definition:
        job_id = run(definition)
    assert drives.state(job_id) == "compensated"
    assert world.called[1:] == [
        "payment:forward",
        "payment:forward",
        "payment:backward",
        "room:backward",
    ]


@pytest.mark.parametrize("how", ["owner_dead", "lease_expired"])
def test_a_reclaim_leaves_word_of_the_sender_of_each_open_attempt(how: str) -> None:
    world = sagas.World()
    with sagas.registered(trip(world, **effects(world, "probe", key_lifetime=None))) as definition:
        claimed = claims.running(definition)
        job_id = claimed.id
        assert claims.settle(claims.write(claimed, attempts=[claims.attempt("room")])) == [
            "applied"
        ]
        if how == "owner_dead":
            leases.end_owner(leases.owner())
        else:
            drives.expire_lease(job_id)
            sweeps.reclaim()
    operation = operations.fold(selectors.entries(job_id))["room", FORWARD]
    last, is_done = operation.last_possible_send(2.0)
    assert last is not None
    assert is_done is (how == "owner_dead")


def test_a_contradiction_that_its_next_owner_reads_parks_the_job_before_any_call() -> None:
    world = sagas.World()
    world.says("ticket:forward", sagas.raising(outcomes.Throttled(timedelta(hours=1))))
    with sagas.registered(trip(world)) as definition:
        job_id = run(definition)
        wrong = sightings.NewSighting(
            job_id, "payment", FORWARD, 1, "late", "refused", {"reason": "card_declined"}
        )
        sightings.record([wrong])
        drives.age_journal(job_id)
        drives.make_due(job_id)
        drives.drive_all()
    assert (job(job_id).state, job(job_id).parked_reason) == ("parked", "contradiction")
    assert job(job_id).parked_detail.endswith(
        "settled as confirmed, but its late answer says refused"
    )
    assert world.called == ["room:forward", "payment:forward", "ticket:forward"]


def test_other_arguments_for_a_known_operation_are_refused_before_any_call() -> None:
    world = sagas.World()
    amounts = [12_000, 13_000]

    def priced(_request: Any, _done: Any) -> dict[str, Any]:
        return {"amount_minor": amounts[0], "currency": "EUR"}

    world.says("payment:forward", sagas.raising(outcomes.Throttled(timedelta(hours=1))))
    with sagas.registered(trip(world, arguments=priced)) as definition:
        job_id = run(definition)
        amounts.pop(0)
        drives.age_journal(job_id)
        drives.make_due(job_id)
        drives.drive_all()
        assert (job(job_id).state, job(job_id).parked_reason) == ("parked", "conflict")
        assert "/amount_minor: stored 12000, new 13000" in job(job_id).parked_detail
    assert world.times("payment:forward") == 1
    assert models.Attempt.objects.filter(job_id=job_id, step="payment").count() == 1


def test_a_cancel_of_a_job_in_doubt_is_told_once() -> None:
    world = sagas.World()
    world.says("payment:forward", turned)
    says(world, not_landed)
    with sagas.registered(trip(world, **effects(world, "probe"))) as definition:
        job_id = run(definition)
        before = job(job_id)
        assert turns.cancel(job_id, by="guest", reason="again") is False
        assert job(job_id) == before
        assert job(job_id).turned_at == before.turned_at

"""A ruling never buries evidence that its person had not seen, and evidence after it is never deaf."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from ledger import acts, calls, engine, leases, models, operations, outcomes, resolutions, saga
from ledger import selectors as reading
from ledger.saga import Call, Direction
from recovery import sweeps
from tests import drives, factories, sagas, staff
from tests.ledger.test_resolutions import (
    PRICE,
    SHORT,
    parked_for,
    parked_payment,
    refuse_the_ticket,
    row,
    see,
)

pytestmark = pytest.mark.usefixtures("database")
WAIT_SECONDS = 10.0


def not_landed(_call: Call) -> outcomes.NotLanded:
    return outcomes.NotLanded()


def closed_by_two(job: UUID) -> None:
    for name in ("ann", "bob"):
        staff.does(job, "close", by=staff.member(name))


@contextmanager
def charged_after_all() -> Iterator[UUID]:
    """A payment that was refused, and of which a witness says that it was taken; parked."""
    world = sagas.World()
    world.says("payment:forward", sagas.raising(outcomes.Refused("declined")))
    with sagas.trip(world) as trip:
        job = factories.submit(trip, PRICE)
        drives.drive_all()
        see(job, "confirmed")
        assert sweeps.reconcile().count == 1
        yield job


def test_evidence_that_came_after_the_page_was_shown_is_not_outweighed() -> None:
    sam = staff.member("sam")
    with parked_payment(sagas.World()) as job:
        seen = row(job).fence
        see(job, "refused")
        see(job, "confirmed")
        with pytest.raises(acts.MovedOn, match="evidence has come in since; look again"):
            resolutions.act(job, staff.asked("not-done", sam), by=sam, seen=seen, heard=0)
        assert models.Resolution.objects.count() == 0
        assert row(job).fence == seen


def test_what_evidence_settles_nobody_rules_on() -> None:
    with parked_payment(sagas.World()) as job:
        see(job, "confirmed")
        with pytest.raises(acts.MovedOn, match="evidence has arrived that settles payment:forward"):
            staff.does(job, "not-done")
        assert models.Resolution.objects.count() == 0
        assert sweeps.reconcile().count == 1
        drives.drive_all()
        assert drives.state(job) == "confirmed"


def test_a_job_closed_in_doubt_hears_of_the_charge_that_shows_up_later() -> None:
    with parked_payment(sagas.World()) as job:
        closed_by_two(job)
        see(job, "confirmed")
        assert [sweeps.reconcile().count for _ in range(2)] == [1, 0]
        assert parked_for(job) == "contradiction"


def test_a_ruling_in_words_keeps_the_reference_that_a_witness_had() -> None:
    with charged_after_all() as job:
        staff.does(job, "done", "payment:forward", evidence={"note": "their books say so"})
    operation = operations.fold(reading.entries(job))["payment", Direction.FORWARD]
    assert operation.done().ref == f"ref-{job}:payment:forward"


def test_a_ruling_rests_on_what_was_seen_before_it_and_another_effect_after_it_is_heard() -> None:
    with charged_after_all() as job:
        staff.does(job, "done", "payment:forward", evidence={"note": "their books say so"})
        drives.drive_all()
        assert drives.state(job) == "compensated"
        see(job, "confirmed", ref="a-second-charge")
        assert sweeps.reconcile().count == 1
    assert parked_for(job) == "contradiction"
    operation = operations.fold(reading.entries(job))["payment", Direction.FORWARD]
    assert operation.done().ref == f"ref-{job}:payment:forward"


def test_the_reference_that_a_person_names_goes_with_no_other_effects_data() -> None:
    with parked_payment(sagas.World()) as job:
        assert sweeps.reconcile().count == 0
        closed_by_two(job)
        see(job, "confirmed", ref="charge-b")
        assert sweeps.reconcile().count == 1
        staff.does(job, "done", "payment:forward", evidence={"ref": "charge-a"})
    evidence = models.Resolution.objects.get(job_id=job, act="done").evidence
    assert evidence == {"ref": "charge-a"}


def test_a_job_closed_in_doubt_that_hears_of_its_effect_can_be_ruled_on() -> None:
    with parked_payment(sagas.World()) as job:
        closed_by_two(job)
        see(job, "confirmed")
        assert sweeps.reconcile().count == 1
        staff.does(job, "done", "payment:forward", evidence={"note": "seen in their books"})
        drives.drive_all()
        assert drives.state(job) == "confirmed"


def test_done_without_a_reference_is_refused_where_the_undo_needs_it() -> None:
    with parked_payment(sagas.World()) as job:
        with pytest.raises(acts.ActRefused, match="done needs a ref for payment:forward"):
            staff.does(job, "done", evidence={"note": "their books say so"})
        assert parked_for(job) == "unknown_outcome"


@pytest.mark.parametrize("evidence", ['{"ref": null}', '{"ref": " "}', '{"note": null}'])
def test_nothing_is_no_evidence(evidence: str) -> None:
    staff.member("sam")
    with parked_payment(sagas.World()) as job:
        asked = ["--as", "done", "--by", "sam", "--reason", staff.REASON, "--evidence", evidence]
        with pytest.raises(CommandError, match="done needs the provider's reference"):
            call_command("resolve", str(job), *asked)
        assert models.Resolution.objects.count() == 0


def test_a_question_gives_leave_for_another_send_of_an_undo_past_its_key() -> None:
    world = sagas.World()
    refuse_the_ticket(world)
    world.says("payment:backward", *[sagas.raising(TimeoutError())] * 2)
    world.says("payment:backward:probe", *[not_landed] * 9)
    promises = {"probe": world.handle("payment:backward:probe"), "request_lifetime": timedelta()}
    undo = world.effect("payment", key_lifetime=timedelta(minutes=30), **promises)
    with sagas.trip(world, undo_attempts=2, undo_effect=undo) as trip:
        job = factories.submit(trip, PRICE)
        for _ in range(5):
            drives.make_due(job)
            drives.drive_all()
        assert parked_for(job) == "compensation_failed"
        drives.age_journal(job)
        staff.does(job, "ask")
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert world.times("payment:backward") == 3


def test_a_refund_in_conflict_may_have_been_made_by_hand() -> None:
    world, price = sagas.World(), dict(PRICE)
    refuse_the_ticket(world)
    world.says("payment:backward", sagas.raising(outcomes.NotSent("dns")))
    payment = sagas.step(world, "payment", undo_arguments=lambda _i, _d: price, undo_attempts=1)
    ticket = sagas.step(world, "ticket", pivot=True, undo=saga.NotUndoable("last step"))
    made = saga.Saga("test.conflict", version=1, steps=[payment, ticket])
    with sagas.registered(made) as trip:
        job = factories.submit(trip, PRICE)
        drives.drive_all()
        price["note"] = "of another build"
        staff.does(job, "retry")
        drives.drive_all()
        assert parked_for(job) == "conflict"
        staff.does(job, "done", "payment:backward")
        drives.drive_all()
    assert drives.state(job) == "compensated"


@pytest.mark.parametrize("is_dropped_first", [False, True])
def test_a_thread_that_was_given_up_is_no_sender_that_has_returned(is_dropped_first: bool) -> None:
    """Without a key, the next owner must not send again while it may be about to."""
    go, world = threading.Event(), sagas.World()

    def hang(call: Call) -> outcomes.Confirmed:
        go.wait(WAIT_SECONDS)
        return sagas.confirm(call)

    world.says("pay:forward", hang)
    world.says("pay:forward:probe", *[not_landed] * 9)
    effect = saga.Effect(
        provider="world",
        call_seconds=0.1,
        probe=world.handle("pay:forward:probe"),
        request_lifetime=SHORT,
    )
    with sagas.registered(
        saga.Saga("test.hang", version=1, steps=[sagas.step(world, "pay", effect=effect)])
    ) as made:
        job = factories.submit(made, PRICE)
        run = engine.Run("forward", pool=calls.Pool(4))
        run.claim()
        run.settle()
        drives.expire_lease(job)
        leases.reclaim(10)
        if is_dropped_first:
            run._renew_at = 0.0
            run.renew()
        deadline = time.monotonic() + WAIT_SECONDS
        while not models.Sighting.objects.filter(job_id=job, kind="late").exists():
            assert time.monotonic() < deadline, "the call is not given up"
            run.take_in()
            run.settle()
        for _ in range(3):
            drives.make_due(job)
            drives.drive_all()
        assert parked_for(job) == "unknown_outcome"
        assert world.times("pay:forward") == 1
        go.set()

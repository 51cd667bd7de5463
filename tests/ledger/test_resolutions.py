"""What each act of a person does afterwards, in the real engine: same operation ids, fresh budgets, nothing twice."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger import acts, checkpoints, models, outcomes, saga, sightings, sql, submission
from ledger.saga import Call, Direction
from recovery import sweeps
from tests import drives, factories, psql, sagas, staff

pytestmark = pytest.mark.usefixtures("database")
SHORT = timedelta(microseconds=1)
PRICE = {"amount_minor": 12_000, "currency": "EUR"}
UNDO = """
WITH j AS (UPDATE ledger_job SET acting_fence = fence, seq = seq + 1 WHERE id = %s RETURNING id, seq, fence)
INSERT INTO ledger_attempt (job_id, seq, fence, step, direction, n, arguments, fingerprint)
SELECT id, seq, fence, 'payment', 'backward', 1,
    jsonb_build_object('amount_minor', %s::bigint, 'currency', 'EUR'), '\\x00' FROM j
"""
DOWN = outcomes.NotSent("connection_refused")


class Books:
    """A provider that honours operation ids: the second witness of what happened, and how often."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()

    def apply(self, call: Call) -> outcomes.Confirmed:
        self.effects[call.operation_id] = 1
        return outcomes.Confirmed(ref=f"ref-{call.operation_id}")

    def apply_and_lose(self, call: Call) -> outcomes.Confirmed:
        self.apply(call)
        raise TimeoutError

    def find(self, call: Call) -> outcomes.Sighted:
        return self.apply(call) if self.effects[call.operation_id] else outcomes.NotLanded()


def row(job: UUID) -> models.Job:
    return models.Job.objects.get(id=job)


def parked_for(job: UUID) -> str:
    found = row(job)
    assert found.state == "parked"
    return found.parked_reason


def refuse_the_ticket(world: sagas.World) -> None:
    world.says("ticket:forward", sagas.raising(outcomes.Refused("sold_out")))


@contextmanager
def parked_refund(
    world: sagas.World, *answers: sagas.Answer, probe: bool = False
) -> Iterator[UUID]:
    """A trip without a ticket, whose refund has two attempts and gets these answers."""
    refuse_the_ticket(world)
    world.says("payment:backward", *answers)
    with sagas.trip(world, probe=probe, undo_attempts=2) as trip:
        job = factories.submit(trip, PRICE)
        drives.drive_all()
        yield job


@contextmanager
def parked_payment(world: sagas.World, **effect: Any) -> Iterator[UUID]:
    """A trip whose payment's outcome nobody saw, and whose key has lapsed at once."""
    world.says("payment:forward", sagas.raising(TimeoutError()))
    with sagas.trip(world, effect=world.effect("any", key_lifetime=SHORT, **effect)) as trip:
        job = factories.submit(trip, PRICE)
        drives.drive_all()
        assert parked_for(job) == "unknown_outcome"
        yield job


def test_a_retry_after_an_outage_has_a_fresh_budget_and_the_same_id() -> None:
    world = sagas.World()
    with parked_refund(world, sagas.raising(DOWN), sagas.raising(DOWN)) as job:
        assert parked_for(job) == "compensation_failed"
        drives.age_journal(job)  # an hour later
        world.says("payment:backward", sagas.raising(DOWN))  # fails once more, and not for good
        assert staff.does(job, "retry").operation == "payment:backward"
        found = row(job)
        assert (found.state, found.lane, found.parked_reason) == ("waiting", "compensation", "")
        drives.drive_all()
    assert drives.state(job) == "compensated"
    undo = [c.operation_id for c in world.calls if c.operation_id.endswith("payment:backward")]
    assert undo == [f"{job}:payment:backward"] * 4
    heard = [o for s, d, o in drives.receipts(job) if (s, d) == ("payment", "backward")]
    assert heard == ["not_sent"] * 3 + ["confirmed"]
    assert staff.resolved(job) == [("payment:backward", "retry", "sam")]


def test_a_spent_retry_parks_again() -> None:
    world = sagas.World()
    with parked_refund(world, *[sagas.raising(DOWN)] * 4) as job:
        staff.does(job, "retry")
        drives.drive_all()
        assert parked_for(job) == "compensation_failed"
    assert world.times("payment:backward") == 4


def test_a_retry_of_a_refund_whose_reply_was_lost_makes_no_second_one() -> None:
    world, books = sagas.World(), Books()
    with parked_refund(world, books.apply_and_lose, books.apply_and_lose) as job:
        assert parked_for(job) == "unknown_outcome"
        world.says("payment:backward", books.apply)
        staff.does(job, "retry")
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert books.effects == {f"{job}:payment:backward": 1}
    assert world.times("payment:backward") == 3


def test_asking_about_a_refund_whose_reply_was_lost_sends_nothing() -> None:
    world, books = sagas.World(), Books()
    world.says("payment:backward:probe", *[sagas.raising(TimeoutError())] * 10)
    with parked_refund(world, books.apply_and_lose, books.apply_and_lose, probe=True) as job:
        assert parked_for(job) == "unknown_outcome"
        sent = world.times("payment:backward")
        world.script["payment:backward:probe"] = [books.find]
        staff.does(job, "ask")
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert books.effects == {f"{job}:payment:backward": 1}
    assert world.times("payment:backward") == sent


def test_a_refund_made_by_hand_is_resolved_as_done() -> None:
    world = sagas.World()
    with parked_refund(world, sagas.raising(outcomes.Refused("disputed"))) as job:
        assert parked_for(job) == "compensation_failed"
        staff.does(job, "done", evidence={"ref": "re_by_hand"})
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert world.times("payment:backward") == 1
    assert world.times("room:backward") == 1
    kept = models.Resolution.objects.get(job_id=job)
    assert (kept.evidence, kept.reason) == ({"ref": "re_by_hand"}, staff.REASON)


def test_done_goes_on_forward_and_nothing_is_sent_again() -> None:
    world = sagas.World()
    with parked_payment(world) as job:
        staff.does(job, "done", evidence={"ref": "cap_9"})
        assert row(job).lane == "forward"
        drives.drive_all()
    assert drives.state(job) == "confirmed"
    assert world.times("payment:forward") == 1


def test_not_done_goes_back_without_an_undo_of_what_did_not_happen() -> None:
    world = sagas.World()
    with parked_payment(world) as job:
        staff.does(job, "not-done")
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert world.called == ["room:forward", "payment:forward", "room:backward"]


def test_what_was_resolved_as_done_is_undone_under_the_reference_that_was_stated() -> None:
    world = sagas.World()
    refuse_the_ticket(world)
    world.says("payment:forward", sagas.raising(TimeoutError()))
    effect = world.effect("any", key_lifetime=SHORT)

    def refund(_input: Any, done: Any) -> dict[str, Any]:
        return {**PRICE, "capture": done["payment"].ref, **done["payment"].data}

    payment = sagas.step(world, "payment", effect=effect, undo_arguments=refund)
    ticket = sagas.step(world, "ticket", pivot=True, undo=saga.NotUndoable("last step"))
    with sagas.registered(saga.Saga("test.stated", version=1, steps=[payment, ticket])) as trip:
        job = factories.submit(trip, PRICE)
        drives.drive_all()
        staff.does(job, "done", evidence={"ref": "cap_9", "data": {"subject": "anna"}})
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert dict(world.calls[-1].arguments) == {**PRICE, "capture": "cap_9", "subject": "anna"}


def test_a_key_that_may_have_lapsed_is_not_sent_again_by_a_retry() -> None:
    world = sagas.World()
    with (
        parked_payment(world) as job,
        pytest.raises(acts.ActRefused, match="resolve it as done or not"),
    ):
        staff.does(job, "retry")
    assert parked_for(job) == "unknown_outcome"


def test_compensate_turns_a_parked_job_and_settles_the_doubt_first() -> None:
    world, books = sagas.World(), Books()
    lost = sagas.raising(TimeoutError())
    world.says("payment:forward", books.apply_and_lose)
    world.says("payment:forward:probe", *[lost] * 5)
    with sagas.trip(world, probe=True, attempts=1) as trip:
        job = factories.submit(trip, PRICE)
        drives.drive_all()
        assert parked_for(job) == "unknown_outcome"
        staff.does(job, "compensate")
        found = row(job)
        assert (found.direction, found.lane, found.turned_by) == ("backward", "compensation", "sam")
        staff_asks = world.times("payment:forward:probe")
        drives.drive_all()
        assert parked_for(job) == "unknown_outcome"  # turned, and still not known
        world.script["payment:forward:probe"] = [books.find]
        staff.does(job, "ask")
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert world.times("payment:forward:probe") == staff_asks + 1
    assert (world.times("payment:forward"), world.times("payment:backward")) == (1, 1)


def test_compensate_of_a_job_that_waits_is_a_cancel() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        assert staff.does(job, "compensate").state == "waiting"
        assert (row(job).turned_by, row(job).fence, staff.resolved(job)) == ("sam", 0, [])
        drives.drive_all()
    assert (drives.state(job), world.called) == ("refused", [])
    assert [who for who, _ in staff.logged(job)] == ["sam"]


def see(job: UUID, outcome: str, step: str = "payment", ref: str = "") -> None:
    evidence = {"ref": ref or f"ref-{job}:{step}:forward", "data": {}}
    late = sightings.NewSighting(job, step, Direction.FORWARD, 1, "late", outcome, evidence)
    sightings.record([late])


@pytest.mark.parametrize(("act", "end"), [("done", "confirmed"), ("not-done", "parked")])
def test_a_contradiction_is_ruled_on_by_a_person_and_newer_evidence_is_another(
    act: str, end: str
) -> None:
    """Past the pivot, what did not happen after all cannot be undone: it parks again, visibly."""
    with sagas.trip(sagas.World()) as trip:
        job = factories.submit(trip, PRICE)
        drives.drive_all()
        see(job, "refused")
        assert sweeps.reconcile().count == 1
        assert parked_for(job) == "contradiction"
        with pytest.raises(acts.ActRefused, match="payment:forward is contradicted: resolve it as"):
            staff.does(job, "retry")
        staff.does(job, act, "payment:forward")
        drives.drive_all()
        assert drives.state(job) == end
        assert sweeps.reconcile().count == 0
        if act == "done":
            see(job, "refused")
            assert sweeps.reconcile().count == 1
            assert parked_for(job) == "contradiction"


def test_a_note_does_not_outweigh_evidence() -> None:
    world = sagas.World()
    with parked_payment(world) as job:
        see(job, "confirmed")
        staff.does(job, "note")
        assert sweeps.reconcile().count == 1
        drives.drive_all()
    assert drives.state(job) == "confirmed"


def test_two_people_close() -> None:
    world = sagas.World()
    first, second = staff.member("first"), staff.member("second")
    with parked_refund(world, sagas.raising(outcomes.Refused("disputed"))) as job:
        assert staff.does(job, "close", by=first).act == "close-proposed"
        assert parked_for(job) == "compensation_failed"
        with pytest.raises(
            acts.ActRefused, match="already proposed by first: a second person closes it"
        ):
            staff.does(job, "close", by=first)
        assert staff.does(job, "close", by=second).state == "closed"
        drives.drive_all()
    found = row(job)
    assert (found.state, found.parked_reason) == ("closed", "")
    assert found.finished_at is not None
    last = models.Checkpoint.objects.filter(job_id=job).latest("id")
    assert (last.seq, last.fence) == (found.seq, found.fence)
    assert last.data["state"] == "closed"
    assert checkpoints.outcomes_of(last.format, last.data)["payment:backward"] == "refused"
    assert [a for _, a, _ in staff.resolved(job)] == ["close-proposed", "close"]


def test_a_proposal_to_close_ends_when_the_job_goes_on() -> None:
    world = sagas.World()
    first, second = staff.member("first"), staff.member("second")
    with parked_refund(world, *[sagas.raising(DOWN)] * 4) as job:
        staff.does(job, "close", by=first)
        staff.does(job, "retry", by=second)
        drives.drive_all()
        assert parked_for(job) == "compensation_failed"
        assert staff.does(job, "close", by=second).act == "close-proposed"
    assert drives.state(job) == "parked"


def test_evidence_seen_before_it_was_closed_does_not_open_it_again() -> None:
    world = sagas.World()
    with parked_refund(world, sagas.raising(outcomes.Refused("disputed"))) as job:
        see(job, "refused", step="room")
        for name in ("first", "second"):
            staff.does(job, "close", by=staff.member(name))
        assert sweeps.reconcile().count == 0
    assert drives.state(job) == "closed"


def test_taken_released_and_noted() -> None:
    world = sagas.World()
    with parked_payment(world) as job:
        staff.does(job, "take", by=staff.member("ann", "operator"))
        assert row(job).taken_by == "ann"
        staff.does(job, "note", by=staff.member("bob", "operator"))
        assert (row(job).taken_by, parked_for(job)) == ("ann", "unknown_outcome")
        staff.does(job, "release", by=staff.member("bob", "operator"))
        assert row(job).taken_by == ""
        staff.does(job, "take")
        staff.does(job, "done")
        assert (row(job).state, row(job).taken_by) == (
            "waiting",
            "",
        )  # nobody has looked at it since


def test_a_retry_gives_the_first_term_again_however_often() -> None:
    world = sagas.World()
    world.says("room:forward", sagas.raising(TimeoutError()), sagas.raising(TimeoutError()))
    with sagas.trip(world, attempts=1) as trip:
        job = submission.submit(
            tenant_id=factories.TenantFactory.create().id,
            key="key",
            saga=trip,
            request={},
            input={},
            deadline=timedelta(hours=1),
        ).job_id
        for _ in range(2):
            drives.drive_all()
            assert parked_for(job) == "unknown_outcome"
            staff.does(job, "retry")
            left = sql.fetch(
                "SELECT deadline_at - ledger_now() FROM ledger_job WHERE id = %s", [job]
            )[0][0]
            assert timedelta(minutes=59) < left <= timedelta(hours=1)
        drives.drive_all()
    assert drives.state(job) == "confirmed"


def test_a_job_parked_as_a_whole_goes_on_by_a_retry() -> None:
    """No operation is named: its arguments could not even be derived by the build of that day."""
    world, builds = sagas.World(), iter([True])

    def derive(request: Any, _done: Any) -> dict[str, Any]:
        if next(builds, False):
            raise KeyError("amount")
        return dict(request)

    step = sagas.step(world, "payment", arguments=derive)
    with sagas.registered(saga.Saga("test.whole", version=1, steps=[step])) as definition:
        job = factories.submit(definition)
        drives.drive_all()
        assert parked_for(job) == "conflict"
        assert staff.does(job, "retry").operation == ""
        drives.drive_all()
    assert drives.state(job) == "confirmed"
    assert world.called == ["payment:forward"]


def test_what_has_no_undo_and_was_taken_back_by_hand() -> None:
    """A ticket that was refused after all turns out to be issued: it is true, and then cancelled by telephone."""
    world = sagas.World()
    refuse_the_ticket(world)
    with sagas.trip(world) as trip:
        job = factories.submit(trip, PRICE)
        drives.drive_all()
        assert drives.state(job) == "compensated"
        see(job, "confirmed", step="ticket")
        assert sweeps.reconcile().count == 1
        staff.does(job, "done", evidence={"ref": "tk_1"})
        drives.drive_all()
        assert parked_for(job) == "compensation_failed"
        staff.does(job, "done", "ticket:backward", evidence={"note": "cancelled by telephone"})
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert (world.times("ticket:forward"), world.times("payment:backward")) == (1, 1)


def test_an_undo_is_bound_by_what_a_person_stated() -> None:
    world = sagas.World()
    with parked_payment(world) as job:
        staff.does(job, "done", evidence={"ref": "cap_9"})
        for amount, refusal in ((12_001, ("P0001", "ledger_attempt_money")), (12_000, ("", ""))):
            with psql.connected("worker") as session:
                assert psql.met(session, UNDO, [job, amount]) == refusal

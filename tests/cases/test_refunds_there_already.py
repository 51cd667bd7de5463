"""C11: "already refunded" settles the undo if it is the refund that we want, whoever made it; else a person looks, once."""

from typing import Any

import pytest

from bookings import saga as booking
from ledger import engine, saga
from tests import drives
from tests.cases import trips
from tests.cases.trips import BACKWARD, PAID, REFUNDED, Stage, Trip


def by_hand(trip: Trip, **changes: Any) -> str:
    """Somebody refunds in the provider's dashboard, under a key that is not ours; the refund's reference."""
    body = {
        "capture": trip.final().evidence["ref"],
        "amount_minor": trips.PRICE_MINOR,
        "currency": "EUR",
        "subject": trip.subject,
        **changes,
    }
    key = {"Idempotency-Key": f"by-hand-{changes}-{trip.subject}"}
    answer = trip.sandbox.client.post("/v1/refunds", json=body, headers=key)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def going_back(stage: Stage, *rules: dict[str, Any], of: saga.Saga = booking.trip) -> Trip:
    """A paid trip without a ticket, before its first undo."""
    trip = stage.book(of)
    stage.refuse_tickets(*rules)
    engine.drive("forward")
    assert (trip.effects(), trip.row().direction) == ([PAID], "backward")
    return trip


def assert_undone_by(stage: Stage, trip: Trip, refund: str) -> None:
    assert trip.state() == "compensated"
    assert trip.final(BACKWARD).evidence["ref"] == refund
    assert trip.final(BACKWARD).evidence["data"]["already"] is True
    assert trip.effects() == [PAID, REFUNDED]
    assert stage.small.taken() == [0, 0]


def test_our_own_refund_whose_reply_was_lost(stage: Stage) -> None:
    """Its key is forgotten and look-ups are behind: it is sent again, and found to be there."""
    stage.sandbox.control("forget_keys", no_idempotency=True)
    lost = {"do": "drop_after", "match": "refund", "times": 1}
    trip = going_back(stage, lost, {"do": "stale", "match": "probe"})
    drives.drive_all()
    assert trip.requests().count("refund") == 2
    [refund] = stage.sandbox.effects(trip.operation(BACKWARD))
    assert_undone_by(stage, trip, refund["id"])
    trip.agree()


def test_a_refund_made_by_hand(stage: Stage) -> None:
    trip = going_back(stage)
    theirs = by_hand(trip)
    drives.drive_all()
    assert stage.sandbox.effects(trip.operation(BACKWARD)) == []
    assert_undone_by(stage, trip, theirs)
    before = trips.snapshot(trip)
    trips.sweep()
    assert drives.drive_all() == 0
    assert trips.snapshot(trip) == before


def assert_parked_once(stage: Stage, trip: Trip, reason: str) -> None:
    """It waits for a person; the room is given back all the same, and nobody is asked again."""
    assert trip.parked() == ("parked", reason)
    assert trip.operation(BACKWARD) in trip.row().parked_detail
    before = trips.snapshot(trip)
    for _ in range(5):
        trips.sweep()
        assert drives.drive_all() == 0
    assert trips.snapshot(trip) == before
    assert stage.small.taken() == [0, 0]


@pytest.mark.parametrize(
    ("amounts", "whose"),
    [([5_000, 15_000], {}), ([15_000], {}), ([trips.PRICE_MINOR], {"subject": "someone-else"})],
    ids=["all of it, in parts", "a part of it", "for someone else"],
)
def test_another_refund_than_ours_is_for_a_person(
    stage: Stage, amounts: list[int], whose: dict[str, str]
) -> None:
    trip = going_back(stage)
    for amount in amounts:
        by_hand(trip, amount_minor=amount, **whose)
    drives.drive_all()
    assert_parked_once(stage, trip, "compensation_failed")
    assert trip.requests().count("refund") == len(amounts) * (not whose) + 1
    assert stage.sandbox.effects(trip.operation(BACKWARD)) == []


@pytest.mark.parametrize("code", ["charge_disputed", "already_refunded"])
def test_a_refund_that_is_refused_is_for_a_person(stage: Stage, code: str) -> None:
    """Disputed; or said to be there already, and not shown."""
    trip = going_back(stage, {"do": "refuse", "match": "refund", "status": 409, "code": code})
    drives.drive_all()
    assert_parked_once(stage, trip, "compensation_failed")
    assert trip.final(BACKWARD).evidence["reason"] == code
    assert trip.requests() == ["capture", "ticket", "refund"]
    assert trip.effects() == [PAID]


@pytest.mark.parametrize("bent", ["other_amount", "other_currency"])
def test_a_refund_of_other_money_is_never_taken_as_ours(stage: Stage, bent: str) -> None:
    """It happened under our id; what is said of it, by answers and look-ups alike, is not what was asked for."""
    rules = {"do": bent, "match": "refund"}, {"do": bent, "match": "probe"}
    with trips.variant(payment={"undo_attempts": 3}) as definition:
        trip = going_back(stage, *rules, of=definition)
        drives.drive_all()
        assert trip.outcomes(BACKWARD) == ["unknown"] * 3
        assert_parked_once(stage, trip, "unknown_outcome")
    assert trip.effects() == [PAID, REFUNDED]

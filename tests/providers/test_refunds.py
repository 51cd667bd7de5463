"""A refund never gives back more than was taken, and one that is there already counts only if it
is the one we want.
"""

from typing import Any

import pytest

from bookings import payments, tickets
from ledger import outcomes, saga
from tests.providers import conftest


def by_hand(
    sandbox: conftest.RunningSandbox, refund: conftest.Operation, **changes: Any
) -> dict[str, Any]:
    """A refund that somebody makes in the provider's dashboard, under a key that is not ours."""
    body = {**refund.call.arguments, **changes}
    answer = sandbox.client.post(
        "/v1/refunds", json=body, headers={"Idempotency-Key": f"by-hand-of-{refund.id}"}
    )
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def test_refund_made_by_hand_is_taken_as_ours(sandbox: conftest.RunningSandbox):
    refund = conftest.refund_of(conftest.capture_of())
    theirs = by_hand(sandbox, refund)

    for outcome in (
        refund.do(refund.call),
        refund.do(refund.call),
        refund.find(refund.call),
    ):
        assert isinstance(outcome, outcomes.Confirmed)
        assert outcome.ref == theirs["id"]
        assert outcome.data["already"] is True
        assert outcome.data["amount_minor"] == 12_345
    assert sandbox.effects(refund.id) == []


def test_refund_made_by_hand_for_someone_else_is_refused(sandbox: conftest.RunningSandbox):
    refund = conftest.refund_of(conftest.capture_of())
    by_hand(sandbox, refund, subject="someone-else")

    outcome = refund.do(refund.call)

    assert isinstance(outcome, outcomes.Refused)
    assert outcome.reason == "already_refunded"
    assert sandbox.effects(refund.id) == []


def test_refunds_of_two_halves_are_not_the_whole(sandbox: conftest.RunningSandbox):
    refund = conftest.refund_of(conftest.capture_of(amount_minor=1000))
    by_hand(sandbox, refund, amount_minor=400)

    outcome = refund.do(refund.call)

    assert isinstance(outcome, outcomes.Refused)
    assert outcome.reason == "amount_too_large"
    assert sandbox.effects(refund.id) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"amount_minor": 12_346}, "amount_too_large"),
        ({"capture": "cap_nowhere"}, "no_such_capture"),
        ({"currency": "JPY"}, "other_currency"),
        ({"amount_minor": 0}, "invalid_request"),
        ({"currency": "eur"}, "invalid_request"),
    ],
    ids=str,
)
def test_wrong_refund_is_refused(
    sandbox: conftest.RunningSandbox, changes: dict[str, Any], reason: str
):
    refund = conftest.refund_of(conftest.capture_of(), **changes)

    outcome = refund.do(refund.call)

    assert isinstance(outcome, outcomes.Refused)
    assert outcome.reason == reason
    assert sandbox.effects(refund.id) == []


def test_refund_names_the_captures_reference(sandbox: conftest.RunningSandbox):
    capture = conftest.capture_of()
    done = capture.do(capture.call)
    assert isinstance(done, outcomes.Confirmed)
    trip = Trip()
    arguments = payments.refund_arguments(
        trip, {"capture_payment": saga.Done(done.ref, done.data), "reserve_room": saga.Done("", {})}
    )
    assert arguments == {
        "capture": done.ref,
        "amount_minor": 100,
        "currency": "EUR",
        "subject": "booking",
    }
    with pytest.raises(KeyError):
        payments.refund_arguments(trip, {})


def test_arguments_say_what_the_trip_says():
    trip = Trip()
    assert payments.capture_arguments(trip, {}) == {
        "amount_minor": 100,
        "currency": "EUR",
        "account": "tenant",
        "subject": "booking",
    }
    assert tickets.issue_arguments(trip, {}) == {
        "subject": "booking",
        "hotel": "resort",
        "room_type": "A",
        "arrival": "2031-05-01",
        "nights": 2,
        "guest": "A. Guest",
    }


class Trip:
    """A trip's input, as far as these steps look at it."""

    hotel, room_type, arrival, nights = "resort", "A", "2031-05-01", 2
    amount_minor, currency, account = 100, "EUR", "tenant"
    subject, guest = "booking", "A. Guest"

"""A refund that is stuck, until staff act: the provider's own books say in the end that the money went back once."""

from typing import Any

import httpx2
import pytest

from bookings import submission
from bookings.models import Booking
from ledger import models
from tests import drives, hotels, staff

pytestmark = pytest.mark.usefixtures("database")
NO_TICKET = {"do": "refuse", "match": "ticket", "status": 422, "code": "none_left"}
NO_PROBE = {"do": "error_before", "match": "probe"}


def rules(provider: httpx2.Client, *wanted: dict[str, Any]) -> None:
    assert provider.post("/control/rules", json={"rules": list(wanted)}).status_code == 200


def effects(provider: httpx2.Client, booking: Booking) -> list[tuple[str, int | None]]:
    found = provider.get("/books/effects", params={"subject": str(booking.id)}).json()
    return [(e["kind"], e["amount_minor"]) for e in found]


def stuck(provider: httpx2.Client, *wanted: dict[str, Any]) -> Booking:
    """A trip without a ticket whose refund meets these manners; parked."""
    rules(provider, NO_TICKET, *wanted)
    booked = submission.book(hotels.tenant(), "key", hotels.wanted(hotels.make(nights=2)))
    booking = Booking.objects.get(pk=booked.booking.pk)
    drives.drive_all()
    assert drives.state(booking.job_id) == "parked"
    return booking


def refund_by_hand(provider: httpx2.Client, booking: Booking) -> str:
    """As somebody does in the provider's dashboard, under a key that is not ours; its reference."""
    first = models.Attempt.objects.get(
        job_id=booking.job_id, step="capture_payment", direction="backward", n=1
    )
    headers = {"Idempotency-Key": f"by-hand-{booking.id}"}
    answer = provider.post("/v1/refunds", json=first.arguments, headers=headers)
    assert answer.status_code == 201
    return str(answer.json()["id"])


@pytest.mark.parametrize("act", ["ask", "retry"])
def test_a_refund_that_was_applied_and_whose_reply_was_lost_is_not_made_again(
    provider: httpx2.Client, act: str
) -> None:
    booking = stuck(provider, {"do": "error_after", "match": "refund"}, NO_PROBE)
    rules(provider)
    staff.does(booking.job_id, act, "capture_payment:backward")
    drives.drive_all()
    assert drives.state(booking.job_id) == "compensated"
    assert effects(provider, booking) == [("capture", 20_000), ("refund", 20_000)]


def test_a_refund_made_in_the_dashboard_is_taken_as_ours_by_the_retry(
    provider: httpx2.Client,
) -> None:
    booking = stuck(provider, {"do": "error_before", "match": "refund"}, NO_PROBE)
    rules(provider)
    reference = refund_by_hand(provider, booking)
    staff.does(booking.job_id, "retry")
    drives.drive_all()
    assert drives.state(booking.job_id) == "compensated"
    assert effects(provider, booking) == [("capture", 20_000), ("refund", 20_000)]
    final = models.Receipt.objects.get(
        job_id=booking.job_id, step="capture_payment", direction="backward", outcome="confirmed"
    )
    assert final.evidence["ref"] == reference
    assert final.evidence["data"]["already"] is True


def test_a_disputed_charge_parks_once_and_is_settled_with_the_reference_of_the_refund_by_hand(
    provider: httpx2.Client,
) -> None:
    disputed = {"do": "refuse", "match": "refund", "status": 422, "code": "charge_disputed"}
    booking = stuck(provider, disputed)
    refunds = models.Attempt.objects.filter(
        job_id=booking.job_id, step="capture_payment", direction="backward"
    )
    assert drives.drive_all() == 0
    assert refunds.count() == 1
    rules(provider)
    evidence = {"ref": refund_by_hand(provider, booking)}
    staff.does(booking.job_id, "done", evidence=evidence)
    drives.drive_all()
    assert drives.state(booking.job_id) == "compensated"
    assert refunds.count() == 1
    assert effects(provider, booking) == [("capture", 20_000), ("refund", 20_000)]

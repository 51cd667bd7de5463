"""A trip goes back past a payment in doubt: the provider is told to refuse it, and what arrives after that has no effect.

Through the real engine; the provider's own books are the second witness.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from bookings import submission
from bookings.models import Booking
from ledger import crashpoints, models, turns
from tests import drives, hotels

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def small(provider: httpx2.Client) -> hotels.SmallHotel:
    return hotels.make(nights=2)


def book(small: hotels.SmallHotel) -> Booking:
    booked = submission.book(hotels.tenant(), "key", hotels.wanted(small))
    return Booking.objects.get(pk=booked.booking.pk)


def misbehave(provider: httpx2.Client, *rules: dict[str, Any]) -> None:
    assert provider.post("/control/rules", json={"rules": list(rules)}).status_code == 200


def effects(provider: httpx2.Client, booking: Booking) -> list[tuple[str, int]]:
    found = provider.get("/books/effects", params={"subject": str(booking.id)}).json()
    return [(effect["kind"], effect["amount_minor"]) for effect in found]


def sightings(booking: Booking, kind: str) -> list[str]:
    found = models.Sighting.objects.filter(job_id=booking.job_id, kind=kind)
    return list(found.order_by("id").values_list("outcome", flat=True))


def final(booking: Booking) -> tuple[str, str]:
    """How the payment was settled."""
    receipts = models.Receipt.objects.filter(
        job_id=booking.job_id, step="capture_payment", direction="forward"
    )
    one = receipts.get(outcome__in=["confirmed", "refused"])
    return one.outcome, one.evidence.get("reason", "")


@contextmanager
def cancelled_in_doubt(booking: Booking) -> Iterator[None]:
    """The client cancels when the payment's reply has been found lost, before anybody asks what became of it."""
    accepted: list[bool] = []

    def cancel(_point: str) -> None:
        doubtful = models.Receipt.objects.filter(job_id=booking.job_id, outcome="unknown")
        if not accepted and doubtful.exists():
            accepted.append(turns.cancel(booking.job_id, by="client", reason="a test"))

    with crashpoints.armed("settle.after", cancel):
        yield
    assert accepted == [True]


def test_a_payment_in_doubt_is_buried_and_cannot_land_later(
    provider: httpx2.Client, small: hotels.SmallHotel
) -> None:
    booking = book(small)
    misbehave(provider, {"do": "hold", "match": "capture", "seconds": 600})
    with cancelled_in_doubt(booking):
        drives.drive_all()
    assert sightings(booking, "tombstone") == ["refused"]
    assert final(booking) == ("refused", "tombstoned")
    assert drives.state(booking.job_id) == "compensated"
    assert provider.post("/control/release", json={}).json() == {"released": 1}
    assert effects(provider, booking) == []
    assert small.taken() == [0, 0]
    assert models.Attempt.objects.filter(job_id=booking.job_id, step="issue_ticket").count() == 0


def test_a_payment_that_had_landed_is_found_by_the_tombstone_and_refunded(
    provider: httpx2.Client, small: hotels.SmallHotel
) -> None:
    """The probe's answer was behind; the tombstone's cannot be."""
    booking = book(small)
    misbehave(provider, {"do": "drop_after", "match": "capture"}, {"do": "stale", "match": "probe"})
    with cancelled_in_doubt(booking):
        drives.drive_all()
    assert set(sightings(booking, "probe")) == {"not_landed"}
    assert sightings(booking, "tombstone") == ["confirmed"]
    assert final(booking)[0] == "confirmed"
    assert drives.state(booking.job_id) == "compensated"
    assert effects(provider, booking) == [("capture", 20_000), ("refund", 20_000)]
    assert small.taken() == [0, 0]


def test_a_lost_answer_to_a_tombstone_is_asked_for_again(
    provider: httpx2.Client, small: hotels.SmallHotel
) -> None:
    booking = book(small)
    misbehave(
        provider,
        {"do": "drop_before", "match": "capture"},
        {"do": "drop_after", "match": "tombstone", "times": 1},
    )
    with cancelled_in_doubt(booking):
        drives.drive_all()
    assert sightings(booking, "tombstone")[0] == "unknown"
    assert final(booking) == ("refused", "tombstoned")
    assert drives.state(booking.job_id) == "compensated"
    assert effects(provider, booking) == []

"""Whole trips through the real engine and a provider process with its own books: the money and the rooms agree."""

from typing import Any

import httpx2
import pytest

from bookings import rooms, submission
from bookings.models import Booking
from ledger import crashpoints
from ledger.outcomes import Confirmed
from tests import drives, hotels

pytestmark = pytest.mark.usefixtures("database")


def book(small: hotels.SmallHotel, key: str = "key") -> Booking:
    booked = submission.book(hotels.tenant(), key, hotels.wanted(small))
    return Booking.objects.get(pk=booked.booking.pk)


def effects(provider: httpx2.Client, booking: Booking) -> list[tuple[str, int | None]]:
    found: list[dict[str, Any]] = provider.get(
        "/books/effects", params={"subject": str(booking.id)}
    ).json()
    return [(effect["kind"], effect["amount_minor"]) for effect in found]


def refuse(provider: httpx2.Client, kind: str, booking: Booking) -> None:
    rule = {
        "do": "refuse",
        "match": kind,
        "subject": str(booking.id),
        "status": 422,
        "code": "none_left",
    }
    assert provider.post("/control/rules", json={"rules": [rule]}).status_code == 200


def holder(booking: Booking) -> str:
    return f"{booking.job_id}:reserve_room:forward"


def test_a_trip_without_trouble_is_confirmed_with_its_room(provider: httpx2.Client) -> None:
    small = hotels.make(nights=2)
    booking = book(small)
    drives.drive_all()
    assert drives.state(booking.job_id) == "confirmed"
    assert effects(provider, booking) == [("capture", 20_000), ("ticket", None)]
    assert hotels.reservation(holder(booking)).state == "secured"
    assert small.taken() == [1, 1]
    assert book(small).id == booking.id
    assert drives.drive_all() == 0
    assert len(effects(provider, booking)) == 2


def test_a_trip_without_a_ticket_is_undone(provider: httpx2.Client) -> None:
    small = hotels.make(nights=2)
    booking = book(small)
    refuse(provider, "ticket", booking)
    drives.drive_all()
    assert drives.state(booking.job_id) == "compensated"
    assert effects(provider, booking) == [("capture", 20_000), ("refund", 20_000)]
    assert hotels.reservation(holder(booking)).state == "released"
    assert small.taken() == [0, 0]


def test_a_trip_without_a_room_never_meets_a_provider(provider: httpx2.Client) -> None:
    small = hotels.make(nights=2)
    rooms.hold(hotels.call("other", small.stay(1, 1)))
    booking = book(small)
    drives.drive_all()
    assert drives.state(booking.job_id) == "refused"
    assert effects(provider, booking) == []
    assert small.taken() == [0, 1]


def test_a_refused_card_gives_the_room_back(provider: httpx2.Client) -> None:
    small = hotels.make(nights=2)
    booking = book(small)
    refuse(provider, "capture", booking)
    drives.drive_all()
    assert drives.state(booking.job_id) == "compensated"
    assert effects(provider, booking) == []
    assert small.taken() == [0, 0]


@pytest.mark.parametrize("rival", [True, False])
def test_a_hold_that_expires_under_the_payment(provider: httpx2.Client, rival: bool) -> None:
    """Lost to another: refunded, and the other keeps the room. Lost to nobody: taken again."""
    small = hotels.make(nights=2)
    booking = book(small)
    lost: list[object] = []

    def lose_the_hold(_point: str) -> None:
        if not lost and small.taken() == [1, 1]:
            hotels.expire(holder(booking))
            lost.append(rooms.hold(hotels.call("rival", small.stay())) if rival else "nobody")

    with crashpoints.armed("settle.after", lose_the_hold):
        drives.drive_all()
    assert len(lost) == 1
    assert small.taken() == [1, 1]
    if rival:
        assert isinstance(lost[0], Confirmed)
        assert drives.state(booking.job_id) == "compensated"
        assert effects(provider, booking) == [("capture", 20_000), ("refund", 20_000)]
        assert hotels.reservation("rival").state == "held"
        assert hotels.reservation(holder(booking)).state == "expired"
    else:
        assert drives.state(booking.job_id) == "confirmed"
        assert hotels.reservation(holder(booking)).state == "secured"

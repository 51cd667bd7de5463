"""A small hotel to test with: one room type, the same rate and capacity every night unless told otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from uuid import uuid4

from django.apps import apps
from django.db import connection

from bookings import rooms
from bookings.models import Booking, Hotel, Reservation, RoomMonth, RoomNight, RoomType
from bookings.requests import ValidatedRequest
from ledger.saga import Call, Done

RATE_MINOR = 10_000


@dataclass(frozen=True)
class SmallHotel:
    """Nights on sale run from `first` for `nights` nights."""

    hotel: Hotel
    room_type: RoomType
    first: date

    def taken(self) -> list[int]:
        return list(self.room_type.nights.order_by("night").values_list("taken", flat=True))

    def stay(self, offset: int = 0, nights: int = 2) -> dict[str, Any]:
        arrival = self.first + timedelta(days=offset)
        return {
            "hotel": self.hotel.code,
            "room_type": self.room_type.code,
            "arrival": arrival.isoformat(),
            "nights": nights,
        }


def database_today(timezone: str = "UTC") -> date:
    with connection.cursor() as cursor:
        cursor.execute("SELECT (ledger_now() AT TIME ZONE %s)::date", [timezone])
        today: date = cursor.fetchone()[0]
        return today


def make(
    *,
    code: str = "SMALL",
    capacity: int = 1,
    nights: int = 10,
    timezone: str = "UTC",
    rates: Mapping[date, int] | None = None,
    first: date | None = None,
) -> SmallHotel:
    first = first or database_today(timezone) + timedelta(days=30)
    hotel = Hotel.objects.create(code=code, name=code, timezone=timezone, currency="EUR")
    room_type = RoomType.objects.create(hotel=hotel, code="double")
    dates = [first + timedelta(days=offset) for offset in range(nights)]
    RoomNight.objects.bulk_create(
        RoomNight(room_type=room_type, night=night, capacity=capacity) for night in dates
    )
    for month in sorted({night.replace(day=1) for night in dates}):
        rate = (rates or {}).get(month, RATE_MINOR)
        RoomMonth.objects.create(
            room_type=room_type, month=month, rate_minor=rate, capacity=capacity
        )
    return SmallHotel(hotel, room_type, first)


def call(operation_id: str, arguments: Mapping[str, Any]) -> Call:
    return Call(
        operation_id=operation_id,
        job_id=uuid4(),
        tenant="tenant",
        n=1,
        arguments=arguments,
        timeout_seconds=5.0,
    )


def held_by(holder: str, stay: Mapping[str, Any]) -> Call:
    """A call of an operation on the hold that `holder` made."""
    return call(f"{holder}:later", {**stay, "holder": holder})


def pass_expiry(holder: str) -> None:
    """Move the row, not a clock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE bookings_reservation SET expires_at = ledger_now() - interval '1 second' WHERE holder = %s",
            [holder],
        )


def expire(holder: str) -> None:
    """Let the sweep give up this hold."""
    pass_expiry(holder)
    assert rooms.expire_holds(1000) == 1


def reservation(holder: str) -> Reservation:
    return Reservation.objects.get(holder=holder)


def done(holder: str) -> dict[str, Done]:
    return {"reserve_room": Done(ref="", data={"holder": holder})}


def tenant(name: str = "agent") -> Any:
    return apps.get_model("ledger", "Tenant").objects.get_or_create(name=name)[0]


def wanted(small: SmallHotel, **more: Any) -> ValidatedRequest:
    """A request for two nights from the first one on."""
    stay = {"hotel": small.hotel.code, "room_type": "double", "arrival": small.first, "nights": 2}
    return ValidatedRequest(**{**stay, **more})


def accepted_rows() -> tuple[int, int, int]:
    """How many bookings, jobs and submissions there are."""
    jobs, submissions = (apps.get_model("ledger", name) for name in ("Job", "Submission"))
    return Booking.objects.count(), jobs.objects.count(), submissions.objects.count()

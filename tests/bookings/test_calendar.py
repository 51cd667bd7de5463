"""A night is a date of the hotel's calendar, whatever zone our processes and the database's sessions live in.

Twice a year a day has 23 or 25 hours (on Lord Howe 23½ or 24½): a stay over it has as many nights as its dates say, each
is charged once, and each is held once.
"""

import os
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from bookings import prices, rooms, submission
from bookings.models import Booking, RoomNight
from bookings.requests import ValidatedRequest
from ledger.outcomes import Confirmed
from tests import hotels

pytestmark = pytest.mark.usefixtures("database")
CHANGING = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Auckland"]
HERE = ["UTC", "Pacific/Auckland", "America/New_York"]


@pytest.fixture(params=HERE)
def here(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where this process and its session of the database are."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('TimeZone', %s, false)", [request.param])
    yield request.param
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()
    connection.close()


def changes(zone: str, year: int) -> list[date]:
    """The dates of that year that do not have 24 hours there."""
    days = [date(year, 1, 1) + timedelta(days=n) for n in range(364)]
    return [
        day
        for day in days
        if midnight(day + timedelta(1), zone) - midnight(day, zone) != timedelta(days=1)
    ]


def midnight(day: date, zone: str) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def wanted(small: hotels.SmallHotel, arrival: date, nights: int) -> ValidatedRequest:
    return hotels.wanted(small, arrival=arrival, nights=nights)


@pytest.mark.parametrize("zone", CHANGING)
def test_a_stay_over_a_change_has_the_nights_of_its_dates(here: str, zone: str) -> None:
    year = hotels.database_today(zone).year + 1
    small = hotels.make(first=date(year, 1, 1), nights=366, timezone=zone)
    days = changes(zone, year)
    assert len(days) == 2
    for number, day in enumerate(days):
        for arrival, nights in ((day - timedelta(1), 2), (day - timedelta(1), 3), (day, 1)):
            holder, request = f"{number}-{arrival}-{nights}", wanted(small, arrival, nights)
            assert prices.offer(request).price.amount_minor == nights * hotels.RATE_MINOR
            stay = {**small.stay(nights=nights), "arrival": arrival.isoformat()}
            assert isinstance(rooms.hold(hotels.call(holder, stay)), Confirmed)
            taken = RoomNight.objects.filter(taken=1).order_by("night")
            held = [arrival + timedelta(days=n) for n in range(nights)]
            assert list(taken.values_list("night", flat=True)) == held
            rooms.release_if_held(hotels.held_by(holder, stay))
            assert not RoomNight.objects.exclude(taken=0).exists()


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_the_hotels_today_can_be_booked_and_its_yesterday_cannot(here: str, zone: str) -> None:
    """At any moment one of the two has another date than UTC."""
    today = hotels.database_today(zone)
    small = hotels.make(first=today - timedelta(days=3), timezone=zone)
    booked = submission.book(hotels.tenant(), "key", wanted(small, today, 1))
    assert Booking.objects.get(id=booked.booking.id).arrival == today
    with pytest.raises(prices.ArrivalOutOfRange):
        submission.book(hotels.tenant(), "other", wanted(small, today - timedelta(days=1), 1))
    assert hotels.accepted_rows() == (1, 1, 1)

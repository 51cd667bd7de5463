"""What a stay costs and whether it is offered: integers, calendar dates, the hotel's own today."""

from datetime import date, timedelta

import pytest

from bookings import prices, requests
from bookings.models import RoomMonth
from bookings.requests import ValidatedRequest
from ledger.outcomes import Money
from tests import hotels

pytestmark = pytest.mark.usefixtures("database")


def request_for(
    small: hotels.SmallHotel, arrival: date, nights: int, **more: object
) -> ValidatedRequest:
    wanted = {"hotel": small.hotel.code, "room_type": "double", **more}
    return ValidatedRequest(arrival=arrival, nights=nights, **wanted)  # type: ignore[arg-type]


def test_each_night_costs_the_rate_of_its_own_month() -> None:
    year = hotels.database_today().year + 1
    rates = {date(year, 3, 1): 10_001, date(year, 4, 1): 20_002}
    hotel = hotels.make(first=date(year, 3, 25), nights=14, rates=rates)
    request = request_for(hotel, date(year, 3, 30), 3)
    offer = prices.offer(request)
    offer.check(request)
    assert offer.price == Money(2 * 10_001 + 20_002, "EUR")


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Auckland"]
)
def test_a_clock_change_neither_adds_nor_takes_a_night(zone: str) -> None:
    year = hotels.database_today(zone).year + 1
    hotel = hotels.make(first=date(year, 1, 1), nights=365, timezone=zone)
    for month, day in ((3, 1), (3, 25), (9, 25), (10, 20), (10, 30)):
        request = request_for(hotel, date(year, month, day), 14)
        offer = prices.offer(request)
        offer.check(request)
        assert offer.price.amount_minor == 14 * hotels.RATE_MINOR


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC"])
def test_today_is_the_hotels(zone: str) -> None:
    today = hotels.database_today(zone)
    hotel = hotels.make(first=today - timedelta(days=3), timezone=zone)
    ours = request_for(hotel, today, 1)
    prices.offer(ours).check(ours)
    yesterday = request_for(hotel, today - timedelta(days=1), 1)
    with pytest.raises(prices.ArrivalOutOfRange) as refused:
        prices.offer(yesterday).check(yesterday)
    assert (refused.value.pointer, refused.value.code) == ("/arrival", "in_the_past")


def test_an_arrival_beyond_the_horizon_is_refused() -> None:
    hotel = hotels.make()
    far = hotels.database_today() + timedelta(days=requests.HORIZON_DAYS + 1)
    request = request_for(hotel, far, 1)
    with pytest.raises(prices.ArrivalOutOfRange) as refused:
        prices.offer(request).check(request)
    assert refused.value.code == "too_far_ahead"


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"hotel": "OTHER"}, "/hotel", "unknown_hotel"),
        ({"room_type": "other"}, "/room_type", "unknown_room_type"),
    ],
)
def test_what_the_books_do_not_have_is_named(
    change: dict[str, str], pointer: str, code: str
) -> None:
    hotel = hotels.make()
    request = request_for(hotel, hotel.first, 1, **change)
    with pytest.raises(prices.NotOffered) as refused:
        prices.offer(request).check(request)
    assert (refused.value.pointer, refused.value.code) == (pointer, code)


def test_a_night_without_a_rate_refuses_the_stay() -> None:
    hotel = hotels.make()
    RoomMonth.objects.all().delete()
    request = request_for(hotel, hotel.first, 2)
    with pytest.raises(prices.NotOffered) as refused:
        prices.offer(request).check(request)
    assert refused.value.code == "no_rate"


@pytest.mark.parametrize("expected", [Money(19_999, "EUR"), Money(20_000, "USD")])
def test_another_expected_total_is_refused_naming_both(expected: Money) -> None:
    hotel = hotels.make()
    request = request_for(hotel, hotel.first, 2, expected_total=expected)
    with pytest.raises(prices.PriceMismatch) as refused:
        prices.offer(request).check(request)
    assert str(expected.amount_minor) in refused.value.detail
    assert "20000 EUR" in refused.value.detail

"""The replay's hotel: the arithmetic is exact, and loading it twice is loading it once."""

import gzip
import io
import json
from collections import Counter
from datetime import date, timedelta

import pytest
from django.core.management import call_command

from bookings import hotel_books, hotel_data, prices, requests
from bookings.models import Hotel, RoomMonth, RoomNight
from bookings.requests import ValidatedRequest


def test_all_stays_are_there_and_in_the_order_of_booking() -> None:
    assert len(hotel_data.read()) == 15_402
    with gzip.open(hotel_data.SOURCE, "rt") as file:
        booked_on = [line.split(",")[0] for line in file][1:]
    assert booked_on == sorted(booked_on)


def test_the_archive_carries_no_time_stamp() -> None:
    assert hotel_data.SOURCE.read_bytes()[4:8] == bytes(4)


@pytest.mark.parametrize(("text", "cents"), [("69.71", 6971), ("87.0", 8700), ("402", 40200)])
def test_money_is_parsed_exactly(text: str, cents: int) -> None:
    assert hotel_data.minor_units(text) == cents


def test_a_fraction_of_a_cent_is_refused() -> None:
    with pytest.raises(ValueError, match=r"69\.715"):
        hotel_data.minor_units("69.715")


@pytest.mark.parametrize(
    "today", [date(2026, 1, 1), date(2026, 6, 12), date(2026, 6, 13), date(2031, 12, 31)]
)
def test_dates_move_by_whole_weeks_into_the_future(today: date) -> None:
    shift = hotel_data.shift_for(today)
    first = hotel_data.first_arrival() + shift
    assert shift.days % 7 == 0
    assert today + timedelta(weeks=1) <= first < today + timedelta(weeks=54)
    last = max(stay.arrival for stay in hotel_data.read()) + shift
    assert (last - today).days <= requests.HORIZON_DAYS


def test_rates_are_what_was_paid_and_capacity_is_less_than_was_taken() -> None:
    shift = hotel_data.shift_for(date(2026, 11, 30))
    paid = {(stay.room_type, stay.rate_minor) for stay in hotel_data.read()}
    occupied = Counter(
        (stay.room_type, night + shift) for stay in hotel_data.read() for night in stay.dates()
    )
    found = hotel_data.months(shift)
    assert {(month.room_type, month.month) for month in found} == {
        (room_type, night.replace(day=1)) for room_type, night in occupied
    }
    for month in found:
        peak = max(
            taken
            for (room_type, night), taken in occupied.items()
            if room_type == month.room_type and night.replace(day=1) == month.month
        )
        assert (month.room_type, month.rate_minor) in paid
        assert 1 <= month.capacity <= max(peak - 1, 1)


def test_stays_that_the_api_would_not_take_are_counted() -> None:
    everything = hotel_data.stays(10**6, timedelta())
    assert len(everything) + sum(everything.skipped.values()) == 15_402
    assert everything.skipped == {"too_long": sum(s.nights > 30 for s in hotel_data.read())}
    assert max(stay.nights for stay in everything) <= requests.NIGHTS_MAX
    assert len(hotel_data.stays(300, timedelta())) == 300


@pytest.mark.usefixtures("database")
def test_loading_twice_is_loading_once() -> None:
    first = hotel_books.load()
    again = hotel_books.load()
    assert first == again
    assert Hotel.objects.get().code == "RESORT"
    assert (first.room_types, first.tenants) == (8, 125)
    assert RoomNight.objects.count() == first.nights
    for month in RoomMonth.objects.select_related("room_type"):
        nights = month.room_type.nights.filter(
            night__year=month.month.year, night__month=month.month.month
        )
        assert nights.count() >= 28
        assert set(nights.values_list("capacity", flat=True)) == {month.capacity}


@pytest.mark.usefixtures("database")
def test_loading_again_keeps_what_is_taken() -> None:
    hotel_books.load()
    night = RoomNight.objects.order_by("capacity", "night")[0]
    RoomNight.objects.filter(pk=night.pk).update(capacity=50, taken=40)
    hotel_books.load()
    night.refresh_from_db()
    assert (night.capacity, night.taken) == (40, 40)


@pytest.mark.usefixtures("database")
def test_every_stay_of_the_replay_has_a_price() -> None:
    shift = hotel_books.load().shift
    for stay in list(hotel_data.stays(10**6, shift))[::500]:
        request = ValidatedRequest(hotel_data.HOTEL, stay.room_type, stay.arrival, stay.nights)
        prices.offer(request).check(request)


@pytest.mark.usefixtures("database")
def test_the_command_says_what_it_loaded() -> None:
    out = io.StringIO()
    call_command("load_hotel", "--json", stdout=out)
    found = json.loads(out.getvalue())
    assert found["hotel"] == "RESORT"
    assert found["nights"] == RoomNight.objects.count()

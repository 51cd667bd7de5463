"""What a client can know before it books: hotels, free rooms, prices; calendar dates in the hotel's zone; no promise."""

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from bookings import requests, rooms
from bookings.models import RoomNight
from tests import hotels
from tests.api.problems import assert_problem


def free(api: Any, code: str, **given: Any) -> Any:
    return api.get(f"/v1/hotels/{code}/availability?{urlencode(given)}")


def stay_of(small: hotels.SmallHotel, offset: int = 0, nights: int = 2) -> dict[str, Any]:
    stay = small.stay(offset, nights)
    return {"arrival": stay["arrival"], "nights": stay["nights"]}


def test_hotels_come_page_by_page_in_order(api: Any) -> None:
    for code in ("C", "A", "B"):
        hotels.make(code=code)
    first = api.get("/v1/hotels?limit=2").json()
    assert [one["code"] for one in first["items"]] == ["A", "B"]
    assert first["items"][0] == {
        "code": "A", "name": "A", "timezone": "UTC", "currency": "EUR", "room_types": ["double"],
    }  # fmt: skip
    last = api.get(first["next"]).json()
    assert ([one["code"] for one in last["items"]], last["next"]) == (["C"], None)


def test_free_rooms_are_those_of_the_fullest_night(api: Any, small: hotels.SmallHotel) -> None:
    RoomNight.objects.filter(night=small.first + timedelta(days=1)).update(taken=4)
    found = free(api, "SMALL", **stay_of(small)).json()
    price = {"amount_minor": 2 * hotels.RATE_MINOR, "currency": "EUR"}
    assert found["room_types"] == [{"room_type": "double", "rooms_free": 1, "price": price}]
    assert free(api, "SMALL", **stay_of(small, 2)).json()["room_types"][0]["rooms_free"] == 5


def test_a_stay_that_is_not_sold_has_no_price_and_no_room(
    api: Any, small: hotels.SmallHotel
) -> None:
    found = free(api, "SMALL", **stay_of(small, 9)).json()
    assert found["room_types"] == [{"room_type": "double", "rooms_free": 0, "price": None}]


def test_a_quote_is_what_the_booking_costs_and_takes_nothing(
    api: Any, body: dict[str, Any], small: hotels.SmallHotel
) -> None:
    quote = api.send("POST", "/v1/quotes", body)
    assert (quote.status_code, quote.json()["rooms_free"]) == (200, 5)
    assert hotels.accepted_rows() == (0, 0, 0)
    booked = api.post({**body, "expected_total": quote.json()["price"]})
    assert (booked.status_code, booked.json()["price"]) == (202, quote.json()["price"])
    rooms.hold(hotels.call("somebody", small.stay()))
    assert api.send("POST", "/v1/quotes", body).json()["rooms_free"] == 4


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin"])
def test_today_is_the_hotels(api: Any, zone: str) -> None:
    """From today in its own calendar on, whatever the date is elsewhere."""
    today = hotels.database_today(zone)
    small = hotels.make(first=today - timedelta(days=2), timezone=zone)
    quote = {"hotel": "SMALL", "room_type": "double", "nights": 1}
    for arrival, status in ((today, 200), (today - timedelta(days=1), 400)):
        assert free(api, "SMALL", arrival=arrival, nights=1).status_code == status
        asked = {**quote, "arrival": arrival.isoformat()}
        assert api.send("POST", "/v1/quotes", asked).status_code == status
    assert small.taken() == [0] * 10


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "?arrival"), ({"arrival": "{day}"}, "?nights"), ({"nights": 1}, "?arrival"),
        ({"arrival": "2020-01-01", "nights": 1}, "?arrival"), ({"arrival": "{far}", "nights": 1}, "?arrival"),
        ({"arrival": "{day}", "nights": 0}, "?nights"), ({"arrival": "{day}", "nights": 31}, "?nights"),
        ({"arrival": "{day}", "nights": "1.0"}, "?nights"), ({"arrival": "tomorrow", "nights": 1}, "?arrival"),
        ({"arrival": "{day}T00:00:00Z", "nights": 1}, "?arrival"), ({"arrival": "{day}", "nights": 1, "x": 1}, "?x"),
        ({"arrival": "\uff12\uff10\uff12\uff17-01-01", "nights": 1}, "?arrival"),
    ],
)  # fmt: skip
def test_a_bad_stay_is_400_and_named(
    api: Any, small: hotels.SmallHotel, given: dict[str, Any], named: str
) -> None:
    far = small.first + timedelta(days=requests.HORIZON_DAYS)
    spelled = {n: str(v).format(day=small.first, far=far) for n, v in given.items()}
    assert_problem(free(api, "SMALL", **spelled), 400, named)


@pytest.mark.parametrize("code", ["NONE", "%00", "a%0Ab", "x" * 300, "%ff", "small"])
def test_a_hotel_that_is_not_there_is_404(api: Any, small: hotels.SmallHotel, code: str) -> None:
    assert_problem(free(api, code, **stay_of(small)), 404)


def test_a_bad_quote_is_named(api: Any, body: dict[str, Any]) -> None:
    def quote(**changes: Any) -> Any:
        return api.send("POST", "/v1/quotes", {**body, **changes})

    assert_problem(quote(nights=0), 400, "/nights")
    assert_problem(quote(price=1), 400, "/price")
    assert_problem(quote(guest="A"), 400, "/guest")
    assert_problem(quote(arrival="2020-01-01"), 400, "/arrival")
    assert_problem(quote(hotel="NONE"), 422, "/hotel")
    assert_problem(quote(room_type="suite"), 422, "/room_type")
    assert_problem(api.send("POST", "/v1/quotes", b"{"), 400)
    assert_problem(api.send("POST", "/v1/quotes"), 415)

"""What holds for every route alike: it is closed by default, keeps to its shape, and no cache may hold its answer."""

from typing import Any

import pytest
from django.urls import get_resolver
from rest_framework import serializers

from bookings.api import shapes
from bookings.api.resource import Resource
from bookings.models import Booking
from tests import hotels
from tests.api.problems import assert_problem

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
SHAPES: dict[str, type[serializers.Serializer[Any]]] = {
    "/v1/bookings": shapes.BookingPage,
    "/v1/bookings/{id}": shapes.Booking,
    "/v1/bookings/{id}/journal": shapes.Journal,
    "/v1/bookings/{id}/operations": shapes.Operations,
    "/v1/report": shapes.Report,
    "/v1/hotels": shapes.HotelPage,
    "/v1/hotels/SMALL/availability?arrival={day}&nights=1": shapes.Availability,
}
CHANGING = {
    "/v1/bookings": shapes.Booking,
    "/v1/bookings/{id}/cancel": shapes.Booking,
    "/v1/quotes": shapes.Quote,
}


@pytest.fixture
def spelled(api: Any, body: dict[str, Any], small: hotels.SmallHotel) -> Any:
    booking = api.book(body)
    return lambda path: path.format(id=booking, day=small.first)


def assert_shape(value: Any, field: Any, place: str = "") -> None:
    """Exactly the members that the shape names, all the way down."""
    if value is None:
        assert field.allow_null, place
    elif isinstance(field, serializers.ListSerializer):
        for item in value:
            assert_shape(item, field.child, f"{place}/-")
    elif isinstance(field, serializers.Serializer):
        assert set(value) == set(field.fields), place
        for name, member in field.fields.items():
            assert_shape(value[name], member, f"{place}/{name}")
    else:
        field.run_validation(value)  # of the type and among the choices


@pytest.mark.parametrize("path", SHAPES)
def test_an_answer_is_of_its_shape_and_for_no_cache(api: Any, spelled: Any, path: str) -> None:
    response = api.get(spelled(path))
    assert response.status_code == 200, response.content
    assert_shape(response.json(), SHAPES[path]())
    assert response["Cache-Control"] == "no-store"
    head = api.send("HEAD", spelled(path))
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("path", CHANGING)
def test_the_answer_to_a_change_is_too(
    api: Any, spelled: Any, body: dict[str, Any], path: str
) -> None:
    headers = {"Idempotency-Key": "another", "If-Match": "*"}
    response = api.send("POST", spelled(path), None if "cancel" in path else body, headers)
    assert response.status_code in (200, 202), response.content
    assert_shape(response.json(), CHANGING[path]())
    assert response["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", sorted({*SHAPES, *CHANGING}))
def test_any_other_method_and_any_other_parameter_is_refused(
    api: Any, spelled: Any, path: str
) -> None:
    allowed = {m for m, of in (("GET", SHAPES), ("HEAD", SHAPES), ("POST", CHANGING)) if path in of}
    glue = "&" if "?" in path else "?"
    for method in METHODS:
        headers = {"X-HTTP-Method-Override": "GET", "If-Match": "*", "Idempotency-Key": "another"}
        if method not in allowed:
            response = api.send(method, spelled(path), None, headers)
            if method == "HEAD":
                assert response.status_code == 405
            else:
                assert_problem(response, 405)
        elif method != "HEAD":
            for extra in ("dry_run=1", "id=1", "format=json", "_method=PUT"):
                named = f"?{extra.partition('=')[0]}"
                given = f"{spelled(path)}{glue}{extra}"
                assert_problem(api.send(method, given, {}, headers), 400, named)
    assert Booking.objects.count() == 1


def test_a_view_that_says_nothing_is_closed(api: Any) -> None:
    """Neither a scope nor a parameter is given by default."""
    assert Resource.scopes == {}
    assert Resource.parameters == {}
    names = {getattr(p, "name", "") for p in get_resolver("bookings.api.urls").url_patterns}
    assert {
        "bookings",
        "booking",
        "cancel",
        "journal",
        "operations",
        "report",
        "hotels",
        "availability",
        "quotes",
    } <= names

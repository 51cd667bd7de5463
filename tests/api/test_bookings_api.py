"""Asking for a booking and looking at it: one booking a key, the same answer again, only for its tenant."""

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from bookings.models import Booking, RoomMonth
from tests import hotels
from tests.api.problems import assert_problem, without_instance

MEMBERS = {
    "id", "state", "class", "outcome_known", "version", "hotel", "room_type", "arrival", "nights", "guest",
    "client_reference", "price", "created_at", "links",
}  # fmt: skip


def test_a_booking_is_accepted_with_a_place_to_look(api: Any, body: dict[str, Any]) -> None:
    response = api.post({**body, "guest": "Ada", "client_reference": "r-1"})
    found = response.json()
    assert response.status_code == 202
    assert response["Location"] == found["links"]["self"] == f"/v1/bookings/{found['id']}"
    assert response["Retry-After"] == "1"
    assert response["Cache-Control"] == "no-store"
    assert "Idempotent-Replayed" not in response
    assert set(found) == MEMBERS
    assert {name: found[name] for name in body} == body
    assert (found["state"], found["outcome_known"]) == ("in_progress", True)
    assert found["price"] == {"amount_minor": 2 * hotels.RATE_MINOR, "currency": "EUR"}
    assert (found["guest"], found["client_reference"]) == ("Ada", "r-1")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", found["created_at"])
    looked_at = api.get(response["Location"])
    assert looked_at.status_code == 200
    assert looked_at.json() == found


def test_the_same_request_again_is_the_same_booking(api: Any, body: dict[str, Any]) -> None:
    first = api.post(body)
    RoomMonth.objects.update(rate_minor=1)
    spelled_otherwise = (
        b" {"
        + b", ".join(
            f'"{name}": {value if isinstance(value, int) else chr(34) + value + chr(34)}'.encode()
            for name, value in reversed(body.items())
        )
        + b"}\n"
    )
    again = api.post(spelled_otherwise, key='"key"')
    assert again.status_code == 202
    assert again["Idempotent-Replayed"] == "true"
    assert again["Location"] == first["Location"]
    assert again.json() == first.json()
    assert hotels.accepted_rows() == (1, 1, 1)


def test_another_request_under_the_key_is_422_without_values(
    api: Any, body: dict[str, Any]
) -> None:
    api.post({**body, "guest": "First Secret"})
    response = api.post({**body, "nights": 3, "guest": "Second Secret"})
    found = assert_problem(response, 422, "/nights", "/guest")
    assert found["type"] == "urn:amends:problem:conflict"
    assert "Secret" not in response.content.decode()
    assert hotels.accepted_rows() == (1, 1, 1)


def test_two_tenants_share_no_key_and_no_booking(client_of: Any, body: dict[str, Any]) -> None:
    one, two = client_of("one"), client_of("two")
    first, second = one.post(body), two.post({**body, "nights": 3})
    assert (first.status_code, second.status_code) == (202, 202)
    assert "Idempotent-Replayed" not in second
    unknown = assert_problem(one.get(f"/v1/bookings/{uuid.uuid4()}"), 404)
    foreign = assert_problem(one.get(second["Location"]), 404)
    assert without_instance(foreign) == without_instance(unknown)
    assert hotels.accepted_rows() == (2, 2, 2)


@pytest.mark.parametrize(
    "made_of",
    [
        "xyz",
        "%00",
        "10" * 30,
        "{id}".replace("id", "braced"),
        "urn:uuid:{id}",
        "{{{id}}}",
        "{upper}",
        "{hex}",
        "a%2Fb",
    ],
)
def test_an_id_that_is_none_is_the_same_404(api: Any, body: dict[str, Any], made_of: str) -> None:
    booked = api.post(body).json()["id"]
    given = made_of.format(id=booked, upper=booked.upper(), hex=booked.replace("-", ""), braced="x")
    unknown = assert_problem(api.get(f"/v1/bookings/{uuid.uuid4()}"), 404)
    assert assert_problem(api.get(f"/v1/bookings/{given}"), 404)["title"] == unknown["title"]


def test_the_price_must_be_the_one_expected(api: Any, body: dict[str, Any]) -> None:
    right = {"amount_minor": 2 * hotels.RATE_MINOR, "currency": "EUR"}
    wrong = api.post({**body, "expected_total": {**right, "amount_minor": 1}})
    found = assert_problem(wrong, 422, "/expected_total")
    assert "20000 EUR" in found["detail"]
    assert hotels.accepted_rows() == (0, 0, 0)
    assert api.post({**body, "expected_total": right}).status_code == 202


def test_what_we_do_not_offer_is_422_and_what_has_passed_is_400(
    api: Any, body: dict[str, Any]
) -> None:
    assert_problem(api.post({**body, "hotel": "OTHER"}), 422, "/hotel")
    assert_problem(api.post({**body, "room_type": "other"}), 422, "/room_type")
    assert_problem(api.post({**body, "arrival": "2020-01-01"}), 400, "/arrival")
    assert hotels.accepted_rows() == (0, 0, 0)
    assert api.post(body).status_code == 202


def test_sixteen_posts_at_once_make_one_booking(api: Any, body: dict[str, Any]) -> None:
    def post() -> Any:
        try:
            return api.post(body)
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as pool:
        answers = [future.result(30) for future in [pool.submit(post) for _ in range(16)]]
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("Idempotent-Replayed" not in answer for answer in answers) == 1
    assert hotels.accepted_rows() == (1, 1, 1)
    assert Booking.objects.count() == 1


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_405(api: Any, method: str) -> None:
    headers = {"Authorization": f"Bearer {api.key}", "X-HTTP-Method-Override": "POST"}
    response = api.client.generic(method, "/v1/bookings", headers=headers)
    assert_problem(response, 405)
    assert "POST" in response["Allow"]


def test_an_answer_names_nothing_of_the_inside(api: Any, body: dict[str, Any]) -> None:
    api.post(body)
    booking = Booking.objects.get()
    text = api.get(f"/v1/bookings/{booking.id}").content.decode()
    assert str(booking.job_id) not in text
    assert str(booking.tenant_id) not in text

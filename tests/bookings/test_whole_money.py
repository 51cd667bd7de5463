"""The amount is one integer from price to capture to refund, in the currency's minor unit; a refund is always the whole.

Two witnesses in each: what the API says, and the provider's own books.
"""

import json
from typing import Any

import httpx2
import pytest
from django.test import Client

from bookings.models import ApiKey, Booking, Hotel, RoomMonth
from ledger import models
from tests import drives, hotels, psql

pytestmark = pytest.mark.usefixtures("database")

# One night at 80, in minor units: no decimals, two, three.
CURRENCIES = [("JPY", 80), ("EUR", 8_000), ("KWD", 80_000)]


class Agent:
    """One tenant at the API."""

    def __init__(self) -> None:
        _, self._key = ApiKey.objects.create_key(tenant=hotels.tenant(), name="test")
        self._client = Client(raise_request_exception=False)

    def send(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self._key}", "Idempotency-Key": "key"}
        data = json.dumps(body) if body is not None else ""
        return self._client.generic(method, path, data, "application/json", headers=headers)

    def book(self, body: dict[str, Any]) -> Any:
        return self.send("POST", "/v1/bookings", body)


@pytest.fixture
def agent(provider: httpx2.Client) -> Agent:
    return Agent()


def one_night(currency: str, rate_minor: int) -> dict[str, Any]:
    small = hotels.make(nights=1)
    Hotel.objects.update(currency=currency)
    RoomMonth.objects.update(rate_minor=rate_minor)
    return small.stay(0, 1)


def refuse_the_ticket(provider: httpx2.Client, *more: dict[str, Any]) -> None:
    rules = [{"do": "refuse", "match": "ticket"}, *more]
    assert provider.post("/control/rules", json={"rules": rules}).status_code == 200


def moved(provider: httpx2.Client, booking_id: str) -> list[tuple[str, int, str]]:
    found = provider.get("/books/effects", params={"subject": booking_id}).json()
    return [(e["kind"], e["amount_minor"], e["currency"]) for e in found]


@pytest.mark.parametrize(("currency", "amount"), CURRENCIES)
def test_price_capture_and_refund_are_one_amount(
    agent: Agent, provider: httpx2.Client, currency: str, amount: int
) -> None:
    refuse_the_ticket(provider)
    price = {"amount_minor": amount, "currency": currency}
    booked = agent.book({**one_night(currency, amount), "expected_total": price})
    assert booked.status_code == 202
    assert booked.json()["price"] == price
    drives.drive_all()
    shown = agent.send("GET", booked["Location"]).json()
    assert (shown["state"], shown["price"]) == ("compensated", price)
    assert moved(provider, shown["id"]) == [
        ("capture", amount, currency),
        ("refund", amount, currency),
    ]
    summary = provider.get("/books/summary").json()
    assert type(summary["captures"]["amount_minor"][currency]) is int


@pytest.mark.parametrize(
    ("total", "status"),
    [
        ({"amount_minor": 80.5, "currency": "JPY"}, 400),
        ({"amount_minor": 80.0, "currency": "JPY"}, 400),
        ({"amount_minor": "80", "currency": "JPY"}, 400),
        ({"amount_minor": "80.001", "currency": "EUR"}, 400),
        ({"amount_minor": 80, "currency": "jpy"}, 400),
        ({"amount_minor": 80, "currency": "JPYX"}, 400),
        ({"amount_minor": 80, "currency": ""}, 400),
        ({"amount_minor": 80, "currency": "XXQ"}, 422),
        ({"amount_minor": 80, "currency": "EUR"}, 422),
        ({"amount_minor": 8_000, "currency": "JPY"}, 422),
    ],
    ids=str,
)
def test_another_precision_or_currency_is_refused(
    agent: Agent, total: dict[str, Any], status: int
) -> None:
    answer = agent.book({**one_night("JPY", 80), "expected_total": total})
    assert answer.status_code == status
    assert all(e["pointer"].startswith("/expected_total") for e in answer.json()["errors"])
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize("amount", [0, -1, None])
@pytest.mark.parametrize(
    ("table", "column"),
    [("bookings_roommonth", "rate_minor"), ("bookings_booking", "amount_minor")],
)
def test_nothing_is_sold_for_nothing_or_less(
    agent: Agent, provider: httpx2.Client, table: str, column: str, amount: int | None
) -> None:
    """The database refuses it, whoever writes; so no capture and no refund is of nothing either."""
    booked = agent.book(one_night("EUR", 8_000)).json()
    with psql.connected() as owner:
        refused = psql.refusal(owner, f"UPDATE {table} SET {column} = %s", [amount])  # noqa: S608
    assert refused[0] == ("23502" if amount is None else "23514")
    drives.drive_all()
    assert moved(provider, booked["id"])[0] == ("capture", 8_000, "EUR")


@pytest.mark.parametrize(
    "member", ["refund", "refund_amount", "amount_minor", "partial", "capture", "currency"]
)
def test_no_request_can_name_an_amount_to_move(agent: Agent, member: str) -> None:
    answer = agent.book({**one_night("EUR", 8_000), member: 3_000})
    assert answer.status_code == 400
    assert [e["pointer"] for e in answer.json()["errors"]] == [f"/{member}"]
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["{self}", "{self}/refunds", "{self}/refund", "/v1/refunds"])
def test_no_route_orders_a_refund(
    agent: Agent, provider: httpx2.Client, method: str, path: str
) -> None:
    booked = agent.book(one_night("EUR", 8_000)).json()
    drives.drive_all()
    target = path.format(self=booked["links"]["self"])
    answer = agent.send(method, target, {"amount_minor": 3_000, "currency": "EUR"})
    assert answer.status_code in {404, 405}
    drives.drive_all()
    assert [kind for kind, _, _ in moved(provider, booked["id"])] == ["capture", "ticket"]
    assert drives.state(Booking.objects.get().job_id) == "confirmed"


def test_a_refund_whose_reply_was_lost_is_one_refund_of_the_whole(
    agent: Agent, provider: httpx2.Client
) -> None:
    """One operation id, one frozen amount: a retry can be taken neither for a second refund nor for a part."""
    refuse_the_ticket(provider, {"do": "error_after", "match": "refund"})
    booked = agent.book(one_night("EUR", 8_000)).json()
    drives.drive_all()
    job = Booking.objects.get().job_id
    assert drives.state(job) == "compensated"
    assert moved(provider, booked["id"]) == [("capture", 8_000, "EUR"), ("refund", 8_000, "EUR")]
    refunds = models.Attempt.objects.filter(job_id=job, direction="backward")
    frozen = refunds.get(step="capture_payment", n=1).arguments
    assert frozen is not None
    assert (frozen["amount_minor"], frozen["currency"]) == (8_000, "EUR")
    requests = provider.get("/books/requests", params={"subject": booked["id"]}).json()
    ids = {one["operation_id"] for one in requests if one["kind"] == "refund"}
    assert ids == {f"{job}:capture_payment:backward"}

"""A tenant's report over the API: its own bookings alone, in classes that add up to all of them."""

from typing import Any

import pytest

from bookings import listings, submission
from bookings.models import Booking
from ledger import selectors, turns
from tests import drives, hotels
from tests.api.conftest import ApiClient
from tests.api.problems import assert_problem
from tests.cases.trips import PRICE_MINOR, Stage


def told(api: Any, query: str = "") -> dict[str, Any]:
    response = api.get(f"/v1/report{query}")
    assert response.status_code == 200, response.content
    found: dict[str, Any] = response.json()
    return found


def by_class(found: dict[str, Any]) -> dict[str, int]:
    return {line["class"]: line["bookings"] for line in found["classes"] if line["bookings"]}


def test_it_adds_up_and_agrees_with_the_ledgers(stage: Stage) -> None:
    api, other = ApiClient("agent"), ApiClient("other")
    for tenant, count in ((api.tenant, 3), (other.tenant, 2)):
        for n in range(count):
            submission.book(tenant, f"key-{n}", hotels.wanted(stage.small))
    first = Booking.objects.filter(tenant=api.tenant).order_by("id")[0]
    assert turns.cancel(first.job_id, by="test", reason="for the report")
    drives.drive_all()
    found = told(api)
    assert found["bookings"] == sum(line["bookings"] for line in found["classes"]) == 3
    assert by_class(found) == {"confirmed": 2, "confirmed_failure": 1}
    assert len(found["classes"]) == 8
    (confirmed,) = [line for line in found["classes"] if line["class"] == "confirmed"]
    assert confirmed["money"] == [
        {
            "currency": "EUR", "captured_minor": 2 * PRICE_MINOR, "refunded_minor": 0,
            "held_minor": 2 * PRICE_MINOR, "at_risk_minor": 0,
        }
    ]  # fmt: skip
    ours = selectors.report(tenant=api.tenant.id)
    assert {str(n): line.jobs for n, line in ours.lines.items() if line.jobs} == by_class(found)


def test_periods_add_up(
    api: Any, small: hotels.SmallHotel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "BATCH", 2)
    ids = [api.book(small.stay(n), f"key-{n}") for n in range(5)]
    at = api.get(f"/v1/bookings/{ids[2]}").json()["created_at"]
    parts = [told(api, f"?created_before={at}"), told(api, f"?created_after={at}"), told(api)]
    assert [part["bookings"] for part in parts] == [2, 3, 5]


def test_more_than_one_report_reads_is_refused_and_not_cut(
    api: Any, small: hotels.SmallHotel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "REPORTED_MAX", 1)
    api.book(small.stay(), "one")
    assert told(api)["bookings"] == 1
    api.book(small.stay(), "two")
    assert_problem(api.get("/v1/report"), 422)


def test_a_parameter_that_it_does_not_know_is_400(api: Any) -> None:
    assert_problem(api.get("/v1/report?tenant=other"), 400, "?tenant")
    assert_problem(api.get("/v1/report?limit=1"), 400, "?limit")

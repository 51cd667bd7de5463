"""A tenant's quota of waiting bookings, and no new ones while there is more to do than can be done soon."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings

from bookings.api import admission
from tests import hotels
from tests.api.problems import assert_problem
from tests.api.test_rates import assert_exceeded, posts


@pytest.fixture(autouse=True)
def fresh_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "figures", admission._Figures())


def test_beyond_its_quota_a_tenant_gets_no_more_and_others_do(
    client_of: Callable[..., Any], body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "OPEN_JOBS_MAX", 2)
    api = client_of("one")
    assert [api.post(body, key).status_code for key in ("a", "b")] == [202, 202]
    assert_exceeded(api.post(body, "c"), "open-jobs")
    assert hotels.accepted_rows() == (2, 2, 2)
    assert client_of("other").post(body).status_code == 202
    monkeypatch.setattr(settings, "OPEN_JOBS_MAX", 3)
    assert api.post(body, "c").status_code == 202


def test_a_key_that_was_used_speaks_before_the_quota(
    api: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "OPEN_JOBS_MAX", 1)
    first = api.post(body, "a")
    again = api.post(body, "a")
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert again["Idempotent-Replayed"] == "true"
    assert_problem(api.post({**body, "nights": 1}, "a"), 422)
    items = [{**body, "idempotency_key": "a"}]
    bulk = api.send("POST", "/v1/bookings/bulk", {"bookings": items}).json()["items"]
    assert [(item["status"], item["replayed"]) for item in bulk] == [(202, True)]
    items.append({**body, "idempotency_key": "b"})
    known, new = api.send("POST", "/v1/bookings/bulk", {"bookings": items}).json()["items"]
    assert (known["status"], known["replayed"]) == (202, True)
    assert (new["status"], new["problem"]["violated-policies"]) == (429, ["open-jobs"])
    assert hotels.accepted_rows() == (1, 1, 1)


def test_many_that_are_no_requests_are_told_so_whatever_is_full(
    api: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "OPEN_JOBS_MAX", 1)
    assert api.post(body, "a").status_code == 202
    (item,) = api.send("POST", "/v1/bookings/bulk", {"bookings": [{}]}).json()["items"]
    assert item["status"] == 400


def test_figures_of_too_many_tenants_are_forgotten_also_while_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "TENANTS_MAX", 1)
    figures, one, other = admission._Figures(), uuid4(), uuid4()
    monkeypatch.setattr(admission, "CACHE_SECONDS", -1.0)  # each is old at once
    figures.read(one, lambda: 1)
    assert figures.read(one, lambda: figures.read(other, lambda: 2) + 1) == 3


def test_what_made_no_booking_takes_no_place(
    api: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "OPEN_JOBS_MAX", 2)
    assert [api.post(body, "a").status_code for _ in range(3)] == [202] * 3
    assert_problem(api.post({**body, "hotel": "OTHER"}, "b"), 422)
    assert api.post(body, "c").status_code == 202
    assert_exceeded(api.post(body, "d"), "open-jobs")
    assert hotels.accepted_rows() == (2, 2, 2)


def test_a_place_that_was_counted_before_the_last_reading_is_not_given_back() -> None:
    figures = admission._Figures()
    figures.read(None, lambda: 0)
    until = figures.add(None, 3, most=5)
    assert until is not None
    figures.give_back(None, 3, until - 1)
    assert figures.add(None, 3, most=5) is None
    figures.give_back(None, 3, until)
    assert figures.add(None, 3, most=5) is not None


def test_many_at_once_keep_to_the_quota(
    api: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "OPEN_JOBS_MAX", 5)
    statuses = posts(api, body, 32)
    assert sorted(set(statuses)) == [202, 429]
    assert hotels.accepted_rows() == (5, 5, 5)


def test_a_figure_that_was_read_slowly_does_not_forget_who_came_in_meanwhile() -> None:
    figures = admission._Figures()

    def slowly() -> int:
        figures.read(None, lambda: 0)
        assert figures.add(None, 1, most=5) is not None
        return 0

    figures.read(None, slowly)
    assert figures.add(None, 5, most=5) is None
    assert figures.add(None, 4, most=5) is not None


def test_many_in_one_request_are_within_the_quota_or_none_is_booked(
    api: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "OPEN_JOBS_MAX", 2)
    items = [{**body, "idempotency_key": f"key-{n}"} for n in range(3)]
    assert_exceeded(api.send("POST", "/v1/bookings/bulk", {"bookings": items}), "open-jobs")
    assert hotels.accepted_rows() == (0, 0, 0)


def test_what_was_let_in_elsewhere_is_seen_when_the_figure_is_read_again(
    api: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "OPEN_JOBS_MAX", 1)
    assert api.post(body, "a").status_code == 202
    monkeypatch.setattr(admission, "figures", admission._Figures())  # another process
    assert_exceeded(api.post(body, "b"), "open-jobs")


def test_while_work_waits_for_too_long_new_bookings_are_refused_and_reading_is_not(
    client_of: Callable[..., Any],
    body: dict[str, Any],
    as_role: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, other = client_of("one"), client_of("other")
    booking = api.book(body, "a")
    monkeypatch.setattr(admission, "figures", admission._Figures())
    monkeypatch.setattr(settings, "BACKLOG_SECONDS_MAX", 1e-6)
    with as_role("api"):  # whose own sight ends at the tenant
        assert_problem(other.post(body, "a"), 503)
        refused = api.post(body, "b")
    assert_problem(refused, 503)
    assert refused["Retry-After"] == str(admission.RETRY_SECONDS)
    assert hotels.accepted_rows() == (1, 1, 1)
    assert api.get(f"/v1/bookings/{booking}").status_code == 200
    monkeypatch.setattr(settings, "BACKLOG_SECONDS_MAX", 3600.0)
    assert api.post(body, "b").status_code == 202

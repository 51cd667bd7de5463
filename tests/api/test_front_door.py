"""What a request may not talk us into: another method, another host, another origin, a connection in clear."""

from typing import Any

import pytest
from pytest_django.fixtures import Settings

from bookings.models import Booking
from tests import hotels
from tests.api.conftest import as_the_api
from tests.api.problems import assert_problem

OVERRIDES = ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override")
EVIL = "evil.example"


def ask(
    api: Any,
    path: str,
    headers: dict[str, str] | None = None,
    *,
    method: str = "GET",
    secure: bool = False,
) -> Any:
    sent = {"Authorization": f"Bearer {api.key}", **(headers or {})}
    with as_the_api():
        return api.client.generic(method, path, secure=secure, headers=sent)


@pytest.mark.parametrize("name", OVERRIDES)
def test_a_header_changes_no_method(api: Any, body: dict[str, Any], name: str) -> None:
    own = f"/v1/bookings/{api.book(body)}"
    posted = {name: "POST", "Idempotency-Key": "k", "If-Match": "*"}
    assert ask(api, "/v1/bookings", posted).status_code == 200
    assert_problem(ask(api, f"{own}/cancel", posted), 405)
    assert_problem(ask(api, own, {name: "GET"}, method="POST"), 405)
    assert Booking.objects.count() == 1
    assert api.get(own).json()["state"] == "in_progress"


def test_a_host_that_is_not_ours_is_refused_and_a_forwarded_one_is_not_read(
    api: Any, body: dict[str, Any]
) -> None:
    own = f"/v1/bookings/{api.book(body)}"
    as_ever = ask(api, own)
    for host in (EVIL, f"localhost@{EVIL}", "", "localhost.evil.example"):
        assert_problem(ask(api, own, {"Host": host}), 400)
    forwarded = {
        "X-Forwarded-Host": EVIL,
        "X-Forwarded-Proto": "https",
        "Forwarded": f"host={EVIL}",
    }
    told = ask(api, own, forwarded)
    assert (told.status_code, told.content) == (200, as_ever.content)
    assert EVIL not in str(told.headers)
    assert EVIL not in ask(api, "/v1/bookings?limit=1", forwarded).content.decode()
    made = api.post(body, "other", headers=forwarded)
    assert made["Location"].startswith("/v1/bookings/")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/bookings", 200), ("OPTIONS", "/v1/bookings", 405), ("GET", "/livez", 200), ("OPTIONS", "/admin/", 302)],
)  # fmt: skip
def test_no_other_origin_is_let_in(api: Any, method: str, path: str, status: int) -> None:
    asked = {"Origin": f"https://{EVIL}", "Access-Control-Request-Method": "POST"}
    answer = ask(api, path, asked, method=method)
    assert answer.status_code == status
    assert not [name for name in answer.headers if name.startswith("Access-Control")]


def test_in_clear_nothing_is_done_and_nothing_redirected(
    api: Any, body: dict[str, Any], settings: Settings
) -> None:
    settings.SECURE_SSL_REDIRECT = True
    refused = assert_problem(api.post(body), 403)
    assert refused["type"] == "urn:amends:problem:https-required"
    by_itself = {"X-Forwarded-Proto": "https"}  # and no proxy is trusted
    assert_problem(ask(api, "/v1/bookings", by_itself), 403)
    assert_problem(ask(api, "/v1/nothing"), 404)
    assert hotels.accepted_rows() == (0, 0, 0)
    assert ask(api, "/v1/bookings", secure=True).status_code == 200
    assert ask(api, "/livez").status_code == 200
    assert ask(api, "/admin/").status_code == 301  # a browser's first visit, without a key


def test_a_proxy_that_is_trusted_says_that_it_was_https(api: Any, settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert ask(api, "/v1/bookings", {"X-Forwarded-Proto": "https"}).status_code == 200
    assert_problem(ask(api, "/v1/bookings", {"X-Forwarded-Proto": "http"}), 403)

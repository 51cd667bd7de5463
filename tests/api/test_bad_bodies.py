"""Bad input of any kind: 400 (or 413, 415) with the place named, never a 5xx, and nothing left behind."""

import json
from typing import Any

import pytest

from bookings.api import bulk, parsers
from bookings.models import Booking, WebhookEndpoint
from ledger import models
from tests import hotels
from tests.api import routes
from tests.api.problems import assert_problem


def with_text(body: dict[str, Any], name: str, literal: bytes) -> bytes:
    """The body with one member's value spelled as it stands."""
    text = json.dumps({**body, name: "HERE"}).encode()
    return text.replace(b'"HERE"', literal)


@pytest.mark.parametrize(
    ("name", "literal"),
    [
        *(("nights", literal) for literal in (
            b"0", b"-1", b"31", b"2147483648", b"9223372036854775808", b"1180591620717411303424", b"9" * 5000, b"1.0",
            b"1e3", b"1.5", b"true", b"null", b'"2"', b'"1_000"', b"[]", b"{}", b"NaN", b"Infinity", b"-Infinity",
            b"1e400", '"\u0662"'.encode(), b'" 7 "', b"-0",
        )),
        *(("arrival", literal) for literal in (
            b'"2026-W01-1"', b'"20260101"', b'"0001-01-01"', b'"9999-12-31"', b'"2026-02-30"', b'"2026-13-01"', b'""',
            b'"2027-1-1"', '"\uff12\uff10\uff12\uff17-01-01"'.encode(), b'"2027-01-01T00:00:00"', b"20270101", b"null",
            b'" 2027-01-01"', b'"2027-01-01\\n"',
        )),
        *((name, literal) for name in ("hotel", "guest", "client_reference") for literal in (
            b'""', b'"  "', b'"a\\u0000b"', b'"\\ud800"', b'"\\udfff\\ud800"', b"1", b"true", b"null", b"[]", b"{}",
            b'"' + b"x" * 201 + b'"', b'"a\\r\\nb"', b'"a\\u001bb"',
        )),
        *(("expected_total", literal) for literal in (
            b"null", b"1", b'"EUR"', b"[]", b"{}", b'{"amount_minor": 1}', b'{"currency": "EUR"}',
        )),
        *(("unknown", literal) for literal in (b"1", b"null", b'"\\u0000"')),
    ],
)  # fmt: skip
def test_a_bad_member_is_400_and_named(
    api: Any, body: dict[str, Any], name: str, literal: bytes
) -> None:
    found = assert_problem(api.post(with_text(body, name, literal)), 400)
    assert any(error["pointer"].startswith(f"/{name}") for error in found["errors"]), found
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize(
    "amount",
    [
        b"0",
        b"-1",
        b"1e-9",
        b"1.5",
        b"20000.0",
        b'"1,00"',
        b'"20000"',
        b"true",
        b"null",
        b"1000000000001",
        b"2147483648000000",
        b"9007199254740993",
        b"9223372036854775808",
        b"1180591620717411303424",
        b"9" * 5000,
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e400",
        b"1E+999999999",
        b"1E-999999999",
        b"-0.00",
        b'"NaN"',
        b'"1e400"',
        b'"1E+999999999"',
        b'"1_000"',
        '"\u0661"'.encode(),
    ],
)
def test_a_bad_amount_is_400(api: Any, body: dict[str, Any], amount: bytes) -> None:
    total = b'{"currency": "EUR", "amount_minor": ' + amount + b"}"
    assert_problem(
        api.post(with_text(body, "expected_total", total)), 400, "/expected_total/amount_minor"
    )
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize("currency", ["eur", "usd ", "EURO", "\u20ac", "", 978, None])
def test_a_bad_currency_is_400(api: Any, body: dict[str, Any], currency: Any) -> None:
    total = {"amount_minor": 20_000, "currency": currency}
    assert_problem(api.post({**body, "expected_total": total}), 400, "/expected_total/currency")
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize(
    "member",
    [
        "state",
        "fence",
        "tenant",
        "price",
        "op_id",
        "lease_owner",
        "created_at",
        "id",
        "a/b~c",
        "non_field_errors",
    ],
)
def test_an_unknown_member_is_refused_not_dropped(
    api: Any, body: dict[str, Any], member: str
) -> None:
    found = assert_problem(api.post({**body, member: 1}), 400)
    assert [error["code"] for error in found["errors"]] == ["unknown_field"]
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize("member", ["hotel", "room_type", "arrival", "nights"])
def test_a_missing_member_is_named(api: Any, body: dict[str, Any], member: str) -> None:
    del body[member]
    assert_problem(api.post(body), 400, f"/{member}")


def test_every_bad_member_is_named_at_once(api: Any, body: dict[str, Any]) -> None:
    bad = {**body, "nights": 0, "arrival": "tomorrow", "extra": 1}
    assert_problem(api.post(bad), 400, "/nights", "/arrival", "/extra")


@pytest.mark.parametrize(
    "text",
    [
        b" ", b"{", b'{"hotel":', b"null", b"[]", b'"text"', b"1", b"NaN", b"{'a': 1}", b"{} {}", b'{"a": 1,}',
        b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}", b'{"hotel": "\xe9"}', b'{"hotel": "\xed\xa0\x80"}', b"\x00",
        b'{"\\ud800": 1}',
        b'{"\\u0000": 1}', b"[" * 100_000, b'{"a":' * 40_000, b"[" * 40 + b"]" * 40, b'{"a": "' + b"[" * 99,
        b"[" + b"0," * 100_000 + b"0]",
    ],
)  # fmt: skip
def test_what_is_no_object_of_ours_is_400(api: Any, text: bytes) -> None:
    found = assert_problem(api.post(text), 400)
    assert found["errors"]
    assert hotels.accepted_rows() == (0, 0, 0)


def test_no_body_is_400(api: Any, body: dict[str, Any]) -> None:
    assert_problem(
        api.post(b"", headers={"Content-Type": "application/json"}),
        400,
        *(f"/{name}" for name in body),
    )


def test_a_member_named_twice_is_400(api: Any, body: dict[str, Any]) -> None:
    text = json.dumps(body).encode()
    twice = text[:-1] + b', "nights": 2}'
    assert_problem(api.post(twice), 400, "/nights")
    inner = with_text(
        body, "expected_total", b'{"currency": "EUR", "currency": "EUR", "amount_minor": 1}'
    )
    assert_problem(api.post(inner), 400, "/expected_total/currency")
    assert hotels.accepted_rows() == (0, 0, 0)


def test_a_body_too_large_is_413(api: Any, body: dict[str, Any]) -> None:
    assert_problem(api.post({**body, "guest": "x" * 256 * 1024}), 413)
    assert hotels.accepted_rows() == (0, 0, 0)


def test_a_body_of_unknown_length_is_411(api: Any, body: dict[str, Any]) -> None:
    assert_problem(api.post(body, headers={"Transfer-Encoding": "chunked"}), 411)
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize(
    ("content_type", "headers"),
    [
        ("text/plain", {}),
        ("application/x-www-form-urlencoded", {}),
        ("multipart/form-data; boundary=x", {}),
        ("application/json-patch+json", {}),
        ("application/json; charset=utf-16", {}),
        ("application/json; charset=latin-1", {}),
        ("", {}),
        ("application/json", {"Content-Encoding": "gzip"}),
    ],
)
def test_only_plain_json_is_taken(
    api: Any, body: dict[str, Any], content_type: str, headers: dict[str, str]
) -> None:
    response = api.post(body, content_type=content_type, headers=headers)
    assert_problem(response, 415)
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"'],
)
def test_json_in_any_of_its_spellings_is_taken(
    api: Any, body: dict[str, Any], content_type: str
) -> None:
    assert api.post(body, content_type=content_type).status_code == 202


def test_text_in_any_script_is_kept_as_it_is(api: Any, body: dict[str, Any]) -> None:
    guest = 'Zoe\u0308 \u5f20\u4f1f \U0001f3e8 O\'Neil "x" =1+1'
    assert api.post({**body, "guest": guest}).json()["guest"] == guest


def test_a_refused_request_leaves_its_key_usable(api: Any, body: dict[str, Any]) -> None:
    assert_problem(api.post({**body, "nights": 0}), 400, "/nights")
    assert_problem(api.post(body, content_type="text/plain"), 415)
    accepted = api.post(body)
    assert accepted.status_code == 202
    assert "Idempotent-Replayed" not in accepted


@pytest.mark.parametrize(
    ("path", "size"),
    [("/v1/bookings", parsers.BYTES_MAX), ("/v1/bookings/bulk", bulk.BYTES_MAX)],
)
@pytest.mark.parametrize("piece", [b'\\"', b"\\", b'"', b'""', b'"\\', b"[", b"[]", b"x"])
def test_whatever_fills_a_body_is_looked_at_once(
    api: Any, path: str, size: int, piece: bytes
) -> None:
    """Looking at the rest again from each place would take minutes, in which nobody else is served: past the time limit."""
    body = (b'"' + piece * size)[:size]
    headers = {"Idempotency-Key": "key"}
    sent = {
        "content_type": "application/json",
        "headers": {"Authorization": f"Bearer {api.key}", **headers},
    }
    assert_problem(api.client.post(path, data=body, **sent), 400)
    assert hotels.accepted_rows() == (0, 0, 0)


HOOK = "https://hooks.example/"
TAKING: dict[str, dict[str, Any]] = {
    "/v1/bookings": {"hotel": "x"},
    "/v1/bookings/bulk": {"bookings": [{"idempotency_key": "k"}]},
    "/v1/bookings/{booking}/cancel": {"reason": "x"},
    "/v1/quotes": {"hotel": "x"},
    "/v1/webhooks": {"url": HOOK},
}
ZEROS: list[tuple[str, Any, str]] = [
    *((path, {**of, "guest\0": 1}, "/guest\ufffd") for path, of in TAKING.items()),
    ("/v1/bookings", {"expected_total": {"currency": "E\0R"}}, "/expected_total/currency"),
    ("/v1/bookings", {"expected_total": {"a\0b": 1}}, "/expected_total/a\ufffdb"),
    ("/v1/bookings", {"guest": {"names": ["a", {"b": ["\0"]}]}}, "/guest/names/1/b/0"),
    ("/v1/bookings/bulk", {"bookings": [1, {"guest": "\0"}]}, "/bookings/1/guest"),
    (
        "/v1/bookings/bulk",
        {"bookings": [{"idempotency_key": "a\0b"}]},
        "/bookings/0/idempotency_key",
    ),
    ("/v1/bookings/{booking}/cancel", {"reason": "a\0b"}, "/reason"),
    ("/v1/quotes", {"room_type": "\0"}, "/room_type"),
    ("/v1/webhooks", {"url": f"{HOOK}\0"}, "/url"),
]


def asked(api: Any, path: str, sent: Any, booking: str, **how: Any) -> Any:
    headers = {"Authorization": f"Bearer {api.key}", "Idempotency-Key": "another", "If-Match": "*"}
    data = json.dumps(sent)
    path = path.format(booking=booking)
    return api.client.generic("POST", path, data, headers=headers, **how)


@pytest.mark.parametrize(("path", "sent", "pointer"), ZEROS, ids=str)
def test_a_zero_anywhere_in_a_body_is_400_and_named(
    api: Any, body: dict[str, Any], path: str, sent: Any, pointer: str
) -> None:
    booking = api.book(body)
    refused = asked(api, path, sent, booking, content_type="application/json")
    assert_problem(refused, 400, pointer)
    nothing_but(booking)


@pytest.mark.parametrize("path", TAKING)
@pytest.mark.parametrize(
    "content_type",
    ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"],
)
def test_no_route_takes_a_form(
    api: Any, body: dict[str, Any], path: str, content_type: str
) -> None:
    booking = api.book(body)
    assert_problem(asked(api, path, TAKING[path], booking, content_type=content_type), 415)
    nothing_but(booking)


def test_every_route_that_takes_a_body_is_among_these() -> None:
    posts = {path for path, of in routes.TENANTS.items() if "POST" in of and "secret" not in path}
    assert posts == {path[1:].replace("{booking}", "<str:booking_id>") for path in TAKING}


def nothing_but(booking: str) -> None:
    """There is this booking, as it was, and no other, and no endpoint."""
    assert hotels.accepted_rows() == (1, 1, 1)
    assert str(Booking.objects.get().id) == booking
    assert not models.Job.objects.exclude(turned_by="").exists()
    assert not WebhookEndpoint.objects.exists()

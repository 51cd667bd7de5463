"""The demo's last word is worth something: books that agree pass, and each kind of difference is found and named."""

import json
import os
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.db import connection

from bookings import submission
from config.demo import records
from recovery import books, clients
from tests import drives, hotels

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 15
PAID = books.Booked("b1", "confirmed", 20_000, "EUR")
UNDONE = books.Booked("b2", "compensated", 5_000, "EUR")
REFUSED = books.Booked("b3", "refused", 7_000, "EUR")
BOOKINGS = [PAID, UNDONE, REFUSED]
EFFECTS = [
    books.Effect("j1:capture_payment:forward", "capture", "b1", 20_000, "EUR"),
    books.Effect("j1:issue_ticket:forward", "ticket", "b1"),
    books.Effect("j2:capture_payment:forward", "capture", "b2", 5_000, "EUR"),
    books.Effect("j2:capture_payment:backward", "refund", "b2", 5_000, "EUR"),
]
RECEIPTS = [
    books.Receipt("j1:capture_payment:forward", "capture", "confirmed", 20_000, "EUR"),
    books.Receipt("j1:issue_ticket:forward", "ticket", "confirmed"),
    books.Receipt("j2:capture_payment:forward", "capture", "confirmed", 5_000, "EUR"),
    books.Receipt("j2:issue_ticket:forward", "ticket", "refused"),
    books.Receipt("j2:capture_payment:backward", "refund", "confirmed", 5_000, "EUR"),
]


def test_books_that_agree_are_said_to_agree() -> None:
    found = books.compare(EFFECTS, RECEIPTS, BOOKINGS)
    assert found.agree
    assert (found.differences, found.doubled, found.forgotten) == ([], 0, 0)
    assert found.theirs == found.ours
    assert found.theirs == books.Totals(Counter(EUR=25_000), Counter(EUR=5_000), tickets=1)


def test_a_capture_that_we_do_not_know_is_forgotten() -> None:
    extra = books.Effect("j9:capture_payment:forward", "capture", "b9", 1_000, "EUR")
    found = books.compare([*EFFECTS, extra], RECEIPTS, BOOKINGS)
    assert not found.agree
    assert (found.doubled, found.forgotten) == (0, 1)
    assert found.differences == [
        "j9:capture_payment:forward: in the provider's books, without a receipt of ours"
    ]


def test_a_second_capture_under_the_same_id_is_doubled() -> None:
    found = books.compare([*EFFECTS, EFFECTS[0]], RECEIPTS, BOOKINGS)
    assert not found.agree
    assert (found.doubled, found.forgotten) == (1, 0)
    assert found.differences == [
        "j1:capture_payment:forward: done 2 times",
        "booking b1: confirmed, but paid {'EUR': 40000} with 1 tickets, not {'EUR': 20000} with 1",
    ]


def test_a_capture_that_is_missing_at_the_provider_is_named() -> None:
    found = books.compare(EFFECTS[1:], RECEIPTS, BOOKINGS)
    assert not found.agree
    assert found.differences == [
        "j1:capture_payment:forward: confirmed, yet not in the provider's books",
        "booking b1: confirmed, but paid {} with 1 tickets, not {'EUR': 20000} with 1",
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"amount_minor": 20_001}, "capture of 20001 EUR"),
        ({"currency": "USD"}, "capture of 20000 USD"),
        ({"kind": "refund"}, "refund of 20000 EUR"),
    ],
)
def test_another_amount_is_named(change: dict[str, Any], said: str) -> None:
    found = books.compare([replace(EFFECTS[0], **change), *EFFECTS[1:]], RECEIPTS, BOOKINGS)
    assert not found.agree
    assert found.differences[0] == (
        f"j1:capture_payment:forward: {said} in the provider's books, capture of 20000 EUR in ours"
    )


def test_a_refused_operation_in_the_books_is_named() -> None:
    ticket = books.Effect("j2:issue_ticket:forward", "ticket", "b2")
    found = books.compare([*EFFECTS, ticket], RECEIPTS, BOOKINGS)
    assert not found.agree
    assert found.differences == [
        "j2:issue_ticket:forward: refused, yet in the provider's books",
        "booking b2: compensated, but paid {} with 1 tickets, not {} with 0",
    ]


def test_a_charge_that_was_not_given_back_is_named() -> None:
    """Both sides agree on every operation, and it is still wrong."""
    found = books.compare(EFFECTS[:-1], RECEIPTS[:-1], BOOKINGS)
    assert not found.agree
    assert found.differences == [
        "booking b2: compensated, but paid {'EUR': 5000} with 0 tickets, not {} with 0"
    ]


def test_a_parked_booking_is_named_with_its_reason() -> None:
    parked = replace(REFUSED, state="parked", reason="unknown_outcome j3:capture_payment:forward")
    found = books.compare(EFFECTS, RECEIPTS, [PAID, UNDONE, parked])
    assert not found.agree
    assert found.differences == [
        "booking b3: is not settled: parked unknown_outcome j3:capture_payment:forward"
    ]


def test_a_summary_that_says_more_than_the_pages_is_named() -> None:
    found = books.compare(EFFECTS, RECEIPTS, BOOKINGS)
    summary = {
        "captures": {"count": 2, "amount_minor": {"EUR": 25_000}},
        "refunds": {"count": 1, "amount_minor": {"EUR": 5_000}},
        "tickets": 1,
        "doubled": 0,
    }
    assert books.compare_summary(found, summary) == []
    assert books.compare_summary(found, {**summary, "tickets": 2}) == [
        "tickets: the provider's summary says 2, its books 1"
    ]


def test_a_room_night_too_many_or_too_few_is_named() -> None:
    before = Counter({("A", "2030-05-01"): 3})
    after = Counter({("A", "2030-05-01"): 4, ("A", "2030-05-02"): 1})
    assert books.compare_rooms(before, after, after - before) == []
    assert books.compare_rooms(before, after, Counter({("A", "2030-05-02"): 2})) == [
        "room type A, night 2030-05-01: 1 more taken, 0 confirmed",
        "room type A, night 2030-05-02: 1 more taken, 2 confirmed",
    ]


# --- Read from a real database and a real provider ---------------------------------------------


@pytest.fixture
def sandbox_url(tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "bookings.sandbox", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--store", str(tmp_path / "books.sqlite")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], READY_SECONDS)[0], "the sandbox is not ready"
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
    finally:
        process.terminate()
        process.wait(READY_SECONDS)
        process.stdout.close()


Compare = Callable[[], books.Comparison]


@pytest.fixture
def compare(database: None, settings: Any, sandbox_url: str) -> Iterator[Compare]:
    """Two trips that ran: one confirmed, one whose ticket was refused. Call it to compare the books of both."""
    settings.PAYMENT_URL = settings.TICKET_URL = sandbox_url
    settings.BACKOFF_SECONDS = 0.0
    small = hotels.make(capacity=2)
    before = records.read_taken()
    with clients.Sandbox(sandbox_url) as sandbox:
        ours = [book(small, "first")]
        drives.drive_all()
        sandbox.misbehave({"do": "refuse", "match": "ticket", "code": "sold_out"})
        ours.append(book(small, "second"))
        drives.drive_all()

        def read() -> books.Comparison:
            effects = records.effects_of(sandbox.effects())
            found = books.compare(effects, records.read_receipts(ours), records.read_bookings(ours))
            found.differences += books.compare_summary(found, sandbox.summary())
            found.differences += books.compare_rooms(
                before, records.read_taken(), records.read_confirmed_nights(ours)
            )
            return found

        assert records.count_states(ours) == {"confirmed": 1, "compensated": 1}
        yield read


def book(small: hotels.SmallHotel, key: str) -> str:
    return str(submission.book(hotels.tenant(), key, hotels.wanted(small)).booking.pk)


def capture(url: str, operation_id: str, subject: str) -> None:
    """A charge that nobody ordered through us."""
    body = {"amount_minor": 100, "currency": "EUR", "account": "agent", "subject": subject}
    headers = {"Idempotency-Key": operation_id}
    answer = httpx2.post(f"{url}/v1/captures", json=body, headers=headers, trust_env=False)
    assert answer.status_code == 201


def test_real_books_agree_until_a_charge_is_planted(compare: Compare, sandbox_url: str) -> None:
    found = compare()
    assert found.differences == []
    assert found.agree
    assert found.theirs == books.Totals(Counter(EUR=40_000), Counter(EUR=20_000), tickets=1)
    capture(sandbox_url, "nobody:capture_payment:forward", "nobody")
    found = compare()
    assert not found.agree
    assert found.forgotten == 1
    assert found.differences == [
        "nobody:capture_payment:forward: in the provider's books, without a receipt of ours"
    ]


def test_a_real_charge_under_a_known_id_is_doubled(compare: Compare, sandbox_url: str) -> None:
    with clients.Sandbox(sandbox_url) as sandbox:
        known = next(e for e in sandbox.effects() if e["kind"] == "capture")
        sandbox.misbehave({"do": "no_idempotency", "match": "capture"})
        capture(sandbox_url, known["operation_id"], known["subject"])
    found = compare()
    assert not found.agree
    assert (found.doubled, found.forgotten) == (1, 0)
    assert found.differences[0] == f"{known['operation_id']}: done 2 times"


def test_a_real_night_taken_by_nobody_is_named(compare: Compare) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE bookings_roomnight SET taken = taken + 1 WHERE id = (SELECT min(id) FROM bookings_roomnight)"
        )
    found = compare()
    assert not found.agree
    assert [text.split(":")[1] for text in found.differences] == [" 2 more taken, 1 confirmed"]

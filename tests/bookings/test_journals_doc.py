"""`docs/journals.md` shows the journals that the real engine writes for the two bookings of the brief.

Both run through the engine and a provider process with its own books. Their journals are rendered in one form (ids as
fixed words, times and fingerprints left out) and compared with the document's blocks, and the provider's books too.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from bookings import submission
from bookings.models import Booking
from ledger import models
from tests import documents, drives, hotels

PAGE = documents.Page("journals.md")
PRICE = 12_000  # the brief's 120, in cents
COLUMNS = "    seq  fence  row         operation                   what it says"
REFERENCES = {
    r"cap_\w{20}": "capture",
    r"re_\w{20}": "refund",
    r"tkt_\w{20}": "ticket",
    r"reservation:\d+": "reservation",
}
LOCAL_ATTEMPT, RECEIPT, CHECKPOINT, NEXT_ATTEMPT = range(4)
Place = tuple[int, int, int]


def members(found: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={found[name]}" for name in sorted(found))


def told(evidence: Mapping[str, Any]) -> str:
    """Of the evidence, the reference or the reason, the amount, and the provider's fee."""
    found = {name: evidence[name] for name in ("ref", "reason") if name in evidence}
    data, fee = evidence.get("data", {}), evidence.get("cost", {})
    found |= {name: data[name] for name in ("amount_minor", "currency") if name in data}
    return members(found | ({"fee_minor": fee["amount_minor"]} if fee else {}))


def rows_of(booking: Booking) -> Iterator[tuple[Place, Any, str, str]]:
    """(place, row, what it is, what it says). Within one write: what was done, how far that is, what comes next."""
    receipts = list(models.Receipt.objects.filter(job_id=booking.job_id))
    together = {(r.seq, r.step, r.direction, r.n) for r in receipts}
    for a in models.Attempt.objects.filter(job_id=booking.job_id):
        is_local = (a.seq, a.step, a.direction, a.n) in together
        place = LOCAL_ATTEMPT if is_local else NEXT_ATTEMPT
        yield (a.seq, place, a.pk), a, f"attempt {a.n}", members(a.arguments or {})
    for r in receipts:
        yield (r.seq, RECEIPT, r.pk), r, "receipt", f"{r.outcome} {told(r.evidence)}"
    for c in models.Checkpoint.objects.filter(job_id=booking.job_id):
        how = f"{c.data['state']} {c.data['direction']}, {len(c.data['settled'])} settled"
        yield (c.seq, CHECKPOINT, c.pk), c, "checkpoint", how


def rendered(booking: Booking, word: str) -> str:
    """The journal, a numbered row a line; ids are the words for them."""
    lines = [COLUMNS]
    ordered = sorted(rows_of(booking), key=lambda found: found[0])
    for number, (_, row, kind, text) in enumerate(ordered, 1):
        is_of_step = not isinstance(row, models.Checkpoint)
        name = f"{word}:{row.step}:{row.direction}" if is_of_step else ""
        line = f"{number:>2}  {row.seq:>3}  {row.fence:>5}  {kind:<10}  {name:<26}  {text}"
        lines.append(named(line.rstrip(), booking, word))
    return "\n".join(lines) + "\n"


def named(line: str, booking: Booking, word: str) -> str:
    line = line.replace(str(booking.job_id), word).replace(str(booking.id), f"booking-{word}")
    line = line.replace(booking.arrival.isoformat(), "DATE")
    for pattern, kind in REFERENCES.items():
        line = re.sub(rf"\b{pattern}\b", f"{kind}-{word}", line)
    return line


def books(provider: httpx2.Client, words: Mapping[str, str]) -> str:
    """What the provider applied for these bookings, in its own order, and the sum of the money."""
    lines, net = [], 0
    for effect in provider.get("/books/effects").json():
        if (word := words.get(effect["subject"])) is None:
            continue
        amount = effect["amount_minor"] or 0
        net += {"capture": amount, "refund": -amount}.get(effect["kind"], 0)
        lines.append(f"{effect['kind']:<8} {word} {amount or '':>6}".rstrip())
    return "\n".join([*lines, f"{'net':<8}   {net:>6}"]) + "\n"


@pytest.mark.usefixtures("database")
def test_the_engine_writes_the_journals_that_are_shown(provider: httpx2.Client) -> None:
    night = hotels.database_today() + timedelta(days=30)
    rates = {night.replace(day=1): PRICE}
    small = hotels.make(code="INN", capacity=3, nights=1, first=night, rates=rates)

    def book(key: str) -> submission.Booked:
        return submission.book(
            hotels.tenant("brief"), key, hotels.wanted(small, nights=1, guest="Ada")
        )

    refuse = {"do": "refuse", "match": "ticket", "times": 1, "status": 422, "code": "no_ticket"}
    assert provider.post("/control/rules", json={"rules": [refuse]}).status_code == 200
    a = book("A").booking
    drives.drive_all()
    b = book("B").booking
    drives.drive_all()
    assert [drives.state(x.job_id) for x in (a, b)] == ["compensated", "confirmed"]

    words = {str(a.id): "A", str(b.id): "B"}
    assert rendered(a, "A") == PAGE.fence("text journal-A")
    assert rendered(b, "B") == PAGE.fence("text journal-B")
    assert books(provider, words) == PAGE.fence("text books")
    assert small.taken() == [1]  # of three rooms: "rooms: 2"

    again = book("B")
    assert (again.created, again.booking.id) == (False, b.id)
    assert drives.drive_all() == 0
    assert rendered(b, "B") == PAGE.fence("text journal-B")
    assert books(provider, words) == PAGE.fence("text books")
    assert small.taken() == [1]
    assert not models.Sighting.objects.exists()
    assert not models.Resolution.objects.exists()

"""Reads both sides for `books`: the ledger and the bookings with SQL, the provider's rows as they come.

Nothing here writes, and nothing judges. Kept here: only operations that a provider should know of
are read, so that every row has a counterpart in the provider's books or should have none.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any
from uuid import UUID

from ledger import journal, saga, sql
from recovery import books

RECEIPTS = """
SELECT job_id, step, direction, outcome, evidence FROM ledger_receipt
WHERE outcome IN ('confirmed', 'refused') AND job_id = ANY(%s::uuid[]) ORDER BY id
"""
BOOKINGS = """
SELECT b.id, j.state, b.amount_minor, b.currency, concat_ws(' ', j.parked_reason, j.parked_detail)
FROM bookings_booking b JOIN ledger_job j ON j.id = b.job_id WHERE b.id = ANY(%s::uuid[]) ORDER BY b.id
"""
JOBS = "SELECT job_id FROM bookings_booking WHERE id = ANY(%s::uuid[])"
TAKEN = """
SELECT t.code, n.night::text, n.taken FROM bookings_roomnight n JOIN bookings_roomtype t ON t.id = n.room_type_id
WHERE n.taken > 0
"""
LAST_ROOM = """
SELECT t.code, n.night FROM bookings_roomnight n JOIN bookings_roomtype t ON t.id = n.room_type_id
WHERE n.capacity - n.taken = 1 AND n.night > ledger_now()::date ORDER BY n.night DESC, t.code LIMIT 1
"""
CONFIRMED_NIGHTS = """
SELECT t.code, (b.arrival + day)::text, count(*) FROM bookings_booking b
JOIN ledger_job j ON j.id = b.job_id AND j.state = 'confirmed'
JOIN bookings_roomtype t ON t.id = b.room_type_id
CROSS JOIN LATERAL generate_series(0, b.nights - 1) AS day
WHERE b.id = ANY(%s::uuid[]) GROUP BY 1, 2
"""


def effects_of(rows: Iterable[Mapping[str, Any]]) -> list[books.Effect]:
    """The rows of the sandbox's /books/effects."""
    return [
        books.Effect(
            row["operation_id"], row["kind"], row["subject"], row["amount_minor"], row["currency"]
        )
        for row in rows
    ]


def read_receipts(booking_ids: Sequence[str]) -> list[books.Receipt]:
    """The final receipts of all operations that the provider should know of."""
    jobs = [row[0] for row in sql.fetch(JOBS, [list(booking_ids)])]
    return [
        _receipt(job, step, direction, outcome, journal.as_json(evidence))
        for job, step, direction, outcome, evidence in sql.fetch(RECEIPTS, [jobs])
        if (step, direction) in books.KINDS
    ]


def read_bookings(booking_ids: Sequence[str]) -> list[books.Booked]:
    return [
        books.Booked(str(identifier), state, amount, currency, reason.strip())
        for identifier, state, amount, currency, reason in sql.fetch(BOOKINGS, [list(booking_ids)])
    ]


def read_taken() -> books.Nights:
    return Counter({(code, night): taken for code, night, taken in sql.fetch(TAKEN)})


def read_last_room() -> tuple[str, date]:
    """A room type and a night to come with one room left."""
    room_type, night = sql.fetch(LAST_ROOM)[0]
    return room_type, night


def read_confirmed_nights(booking_ids: Sequence[str]) -> books.Nights:
    rows = sql.fetch(CONFIRMED_NIGHTS, [list(booking_ids)])
    return Counter({(code, night): count for code, night, count in rows})


def _receipt(
    job: UUID, step: str, direction: str, outcome: str, evidence: Mapping[str, Any]
) -> books.Receipt:
    data = evidence.get("data") or {}
    return books.Receipt(
        saga.operation_id(job, step, saga.Direction(direction)),
        books.KINDS[step, direction],
        outcome,
        data.get("amount_minor"),
        data.get("currency"),
    )


STATES = """
SELECT j.state, count(*) FROM bookings_booking b JOIN ledger_job j ON j.id = b.job_id
WHERE b.id = ANY(%s::uuid[]) GROUP BY 1
"""


def count_states(booking_ids: Sequence[str]) -> Counter[str]:
    """How many of these bookings are in each state."""
    return Counter(dict(sql.fetch(STATES, [list(booking_ids)])))


ROWS = """
SELECT (SELECT count(*) FROM bookings_booking), (SELECT count(*) FROM ledger_job),
       (SELECT count(*) FROM ledger_submission), (SELECT count(*) FROM ledger_attempt)
"""


def count_rows() -> tuple[int, ...]:
    """Bookings, jobs, submissions and attempts: what a request that changes nothing leaves as it was."""
    return tuple(sql.fetch(ROWS)[0])


ACCEPTED = "SELECT count(*) FROM ledger_submission WHERE starts_with(key, %s)"


def count_accepted(prefix: str) -> int:
    """Submissions under keys that begin so."""
    count: int = sql.fetch(ACCEPTED, [prefix])[0][0]
    return count


JOB = """
SELECT j.id, j.state, j.leases_lost FROM bookings_booking b JOIN ledger_job j ON j.id = b.job_id WHERE b.id = %s
"""


def read_job(booking_id: str) -> tuple[UUID, str, int]:
    """A booking's job: its id, its state, and how many leases on it were lost."""
    identifier, state, lost = sql.fetch(JOB, [booking_id])[0]
    return identifier, state, lost

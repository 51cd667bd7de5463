"""Nothing that we do is kept by a session of the database, so that the next statement may come over another one.

So does PgBouncer in transaction mode (`test_pgbouncer` has the real one): no statement is prepared, no cursor outlives its
question, no lock its transaction, nobody listens, and no setting stays. PgBouncer can carry prepared statements along by
now, so it is the session itself that is asked.
"""

import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.db import connection

from bookings import submission
from bookings.models import Booking
from bookings.webhooks import sending
from ledger import models, selectors, sql, tenancy
from recovery import sweeps
from tests import drives, hotels, psql
from tests.bookings.conftest import provider, provider_url
from tests.cases import trips

__all__ = ["provider", "provider_url"]
ROOT = Path(__file__).resolve().parents[2]
OFTEN = 12  # psycopg, left to itself, prepares what it is to send for the sixth time
LEFT = {
    "prepared": "SELECT statement FROM pg_prepared_statements",
    "cursors": "SELECT name FROM pg_cursors WHERE name <> ''",
    "locks": "SELECT classid, objid FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
    "channels": "SELECT pg_listening_channels()",
    "tables": "SELECT relname FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'",
    "settings": "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name !~ '^transaction_'",
    "sight": "SELECT 1 WHERE current_setting('amends.sees', true) <> ''",
}
NONE: dict[str, list[Any]] = {name: [] for name in LEFT}
# What begins with pg_advisory_xact or pg_try_advisory_xact is its transaction's own.
OF_A_SESSION = re.compile(
    r"pg_(?:try_)?advisory_(?:un)?lock|\b(?:UN)?LISTEN\b|\.iterator\(|WITH HOLD"
)


@pytest.fixture(autouse=True)
def fresh(database: None) -> None:
    """A session in which nothing has been said."""
    connection.close()


def left() -> dict[str, list[Any]]:
    """What this thread's session has that the next one would not."""
    return {name: sql.fetch(question) for name, question in LEFT.items()}


def test_what_is_done_often_leaves_nothing_with_the_session(provider: httpx2.Client) -> None:
    small, tenant, session = hotels.make(capacity=OFTEN), hotels.tenant(), psql.pid()
    for number in range(OFTEN):
        with tenancy.of(tenant.id):
            wanted = tenant, f"key-{number}", hotels.wanted(small)
            booked = submission.book(*wanted)
            assert not submission.book(*wanted).created
            assert Booking.objects.get(id=booked.booking.id).nights == 2
        drives.drive_all()
        trips.sweep()
        sweeps.park_overdue()
        sweeps.park_unsupported()
        sending.sweep()
        selectors.report()
    assert not models.Job.objects.exclude(state="confirmed").exists()
    assert psql.pid() == session, "all of it was said in one session"
    assert left() == NONE


@pytest.mark.parametrize("how_far", ["while it is read", "after it was left half-way"])
def test_what_is_read_in_pieces_needs_no_cursor_of_the_server(how_far: str) -> None:
    small = hotels.make(nights=30)
    nights: Any = small.room_type.nights.iterator(chunk_size=2)
    next(nights)
    if how_far != "while it is read":
        nights.close()
    assert left() == NONE


@pytest.mark.parametrize(
    "statement", ["SELECT pg_advisory_lock(1)", "LISTEN x", "PREPARE x AS SELECT 1", "SET jit = on"]
)
def test_what_would_be_left_is_seen(statement: str) -> None:
    """Control."""
    sql.fetch(statement)
    assert left() != NONE
    connection.close()
    assert left() == NONE


def test_nothing_of_a_session_is_asked_for_anywhere() -> None:
    """In no branch that the trips above do not take either, nor in a migration."""
    programs = [
        path
        for part in ("ledger", "bookings", "recovery", "config")
        for path in (ROOT / part).rglob("*.py")
    ]
    assert len(programs) > 100
    found = {str(path): OF_A_SESSION.findall(path.read_text()) for path in programs}
    assert {path: words for path, words in found.items() if words} == {}

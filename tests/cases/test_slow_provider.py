"""C49: while a provider takes its time, no transaction is open, no row is locked, and nobody else waits.

The payment is held on the wire by the provider until the test has looked around; that it was still held then is asserted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from bookings import rooms, submission
from ledger import engine, turns
from ledger.outcomes import Confirmed
from tests import drives, hotels, psql
from tests.api.conftest import ApiClient
from tests.cases import trips
from tests.cases.trips import PAID, REFUNDED, Stage, Trip

NOW = "SELECT clock_timestamp()"
NONE_SINCE = """
SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND xact_start < %s)
"""
LOCKABLE = "SELECT 1 FROM ledger_job WHERE id = %s FOR UPDATE NOWAIT"


@contextmanager
def on_the_wire(stage: Stage, trip: Trip) -> Iterator[None]:
    """Within the block the payment is on the wire, under a worker that is at work in another thread."""
    stage.hold("capture")
    worker = psql.Thread(lambda: engine.drive("forward"))
    trip.await_request("capture")
    try:
        yield
        assert (trip.effects(), trip.outcomes()) == ([], []), "the provider was not slow enough"
    finally:
        stage.release()
        worker.join(psql.WAIT_SECONDS)
    assert worker.result() == 1


@pytest.fixture
def impatient(stage: Stage) -> None:
    """Statements of the test's own thread fail where an ordinary one would wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '2s'; SET lock_timeout = '500ms'")


def booked(stage: Stage, api: ApiClient) -> Trip:
    found = submission.book(api.tenant, "key", hotels.wanted(stage.small)).booking
    return Trip(UUID(str(found.job_id)), str(found.id), stage.sandbox)


def staff_page(trip: Trip) -> int:
    """What the admin answers to somebody who looks at this job."""
    client = Client()
    client.force_login(User.objects.create_superuser("sam"))
    return client.get(reverse("admin:ledger_job_change", args=[trip.job_id])).status_code


@pytest.mark.usefixtures("impatient")
def test_no_transaction_and_no_lock_outlasts_the_moment_before_the_call(stage: Stage) -> None:
    trip = stage.book()
    with on_the_wire(stage, trip), psql.connected() as session:
        row = session.execute(NOW).fetchone()
        assert row is not None
        psql.await_true(session, NONE_SINCE, row)
        session.execute(LOCKABLE, [trip.job_id])
    assert trip.state() == "confirmed"
    trip.agree()


@pytest.mark.usefixtures("impatient")
def test_the_same_trip_is_shown_and_cancelled_and_other_rooms_are_held(stage: Stage) -> None:
    api = ApiClient("agent")
    trip = booked(stage, api)
    with on_the_wire(stage, trip):
        answer = api.get(f"/v1/bookings/{trip.subject}")
        assert (answer.status_code, answer.json()["state"]) == (200, "in_progress")
        assert staff_page(trip) == 200
        with transaction.atomic():
            stay = stage.small.stay()
            rooms.NIGHTS.lock(sorted(rooms.NIGHTS.keys(stay)))
            assert isinstance(rooms.hold(hotels.call("another guest", stay)), Confirmed)
        assert turns.cancel(trip.job_id, by="guest", reason="changed plans")
    drives.drive_all()
    assert (trip.state(), trip.effects()) == ("compensated", [PAID, REFUNDED])
    assert stage.small.taken() == [1, 1]
    trip.agree()


def test_a_low_limit_for_idle_transactions_breaks_nothing(stage: Stage) -> None:
    """The server ends every session that is idle in a transaction for a moment; no worker's ever is."""
    with idle_limit(), trips.variant(call_seconds=2.0) as definition:
        trip = stage.book(definition)
        stage.rules({"do": "delay", "match": "*", "seconds": 0.3})
        drives.drive_all()
    assert (trip.state(), trip.row().fence) == ("confirmed", 1)
    trip.agree()


@contextmanager
def idle_limit() -> Iterator[None]:
    pid = psql.pid()
    with connection.cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = '100ms'")
    yield
    assert psql.pid() == pid, "the server had to end the session"

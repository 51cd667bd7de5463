"""What a submission key stands for: one booking of one tenant, in every state and however old; on other routes nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from bookings import rooms
from bookings.models import Booking
from ledger import models, retention, sql
from tests import claims, conftest, drives, hotels, psql
from tests.api.conftest import ApiClient
from tests.api.problems import assert_problem
from tests.cases import trips
from tests.cases.trips import PAID, REFUNDED, TICKETED, Stage, Trip

KEY = "the-key"
OLD = """
SET session_replication_role = replica;
UPDATE ledger_submission SET created_at = created_at - interval '31 days';
UPDATE ledger_job SET created_at = created_at - interval '31 days';
UPDATE bookings_booking SET created_at = created_at - interval '31 days';
SET session_replication_role = origin;
"""
UNIQUE = """
SELECT i.indexrelid::regclass::text, i.indrelid::regclass::text,
    ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey))
FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
WHERE i.indisunique AND t.relnamespace = 'public'::regnamespace AND t.relname ~ '^(ledger|bookings)_'
"""
# A row's own id, one that a job, an endpoint or an event has, and the operation id of a hold, which begins with its job's.
GLOBAL = {"id", "tenant_id", "job_id", "endpoint_id", "event_id", "holder"}
# Of no tenant: what the operator keeps, and keys, which are looked up before their tenant is known.
OF_NOBODY = {
    "bookings_apikey", "bookings_hotel", "bookings_roomtype", "bookings_roommonth", "bookings_roomnight",
    "ledger_build", "ledger_knownversion", "ledger_laneclock", "ledger_provider", "ledger_sweep", "ledger_tenant",
}  # fmt: skip


# --- Two tenants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other_nights", [2, 1])
def test_two_tenants_with_one_key_at_once_have_a_trip_each(stage: Stage, other_nights: int) -> None:
    clients = [ApiClient("one"), ApiClient("other")]
    bodies = [stage.small.stay(), stage.small.stay(nights=other_nights)]
    answers = psql.together(8, lambda n: clients[n % 2].post(bodies[n % 2], KEY))
    assert {answer.status_code for answer in answers} == {202}
    of = [{answer.json()["id"] for answer in answers[n::2]} for n in (0, 1)]
    assert (len(of[0]), len(of[1]), len(of[0] | of[1])) == (1, 1, 2)
    drives.drive_all()
    found = [Booking.objects.get(id=ids.pop()) for ids in of]
    assert [one.tenant_id for one in found] == [client.tenant.id for client in clients]
    mine = [Trip(one.job_id, str(one.id), stage.sandbox) for one in found]
    for trip, nights in zip(mine, (2, other_nights), strict=True):
        assert trip.state() == "confirmed"
        assert trip.effects() == [("capture", nights * hotels.RATE_MINOR), TICKETED]
        trip.agree()
    shown = [
        client.get(f"/v1/bookings{path}").content.decode()
        for client, theirs in zip(clients, found[::-1], strict=True)
        for path in ("", f"/{theirs.id}")
    ]
    for text, theirs in zip(shown[::2], found[::-1], strict=True):
        assert str(theirs.id) not in text
    assert hotels.accepted_rows() == (2, 2, 2)


@pytest.mark.usefixtures("database")
def test_nothing_that_is_unique_can_be_taken_from_another_tenant() -> None:
    found = sql.fetch(UNIQUE)
    assert "ledger_submission_once" in {name for name, _, _ in found}
    shared = [
        (name, columns)
        for name, table, columns in found
        if not GLOBAL & set(columns) and table not in OF_NOBODY
    ]
    assert shared == []


# --- Every state ------------------------------------------------------------------------------------------------------

States = Callable[[Stage, Trip], Any]


@contextmanager
def waiting(_stage: Stage, trip: Trip) -> Iterator[None]:
    assert trip.state() == "waiting"
    yield


@contextmanager
def running(stage: Stage, trip: Trip) -> Iterator[None]:
    """Its payment is on the wire."""
    stage.hold("capture")
    worker = psql.Thread(lambda: drives.drive_alone("forward"))
    trip.await_request("capture")
    assert trip.state() == "running"
    yield
    stage.release()
    worker.result()
    assert (trip.state(), trip.effects()) == ("confirmed", [PAID, TICKETED])


@contextmanager
def confirmed(_stage: Stage, trip: Trip) -> Iterator[None]:
    drives.drive_all()
    assert trip.state() == "confirmed"
    yield
    assert trip.effects() == [PAID, TICKETED]


@contextmanager
def compensated(stage: Stage, trip: Trip) -> Iterator[None]:
    stage.refuse_tickets()
    drives.drive_all()
    assert trip.state() == "compensated"
    stage.rules()
    yield
    assert trip.effects() == [PAID, REFUNDED]


@contextmanager
def refused(stage: Stage, trip: Trip) -> Iterator[None]:
    for n in range(500):
        rooms.hold(hotels.call(f"other-{n}", stage.small.stay()))
    drives.drive_all()
    assert (trip.state(), trip.effects()) == ("refused", [])
    yield
    assert trip.requests() == []


@contextmanager
def parked(stage: Stage, trip: Trip) -> Iterator[None]:
    stage.refuse_tickets({"do": "refuse", "match": "refund", "status": 422, "code": "disputed"})
    drives.drive_all()
    assert trip.state() == "parked"
    yield
    assert trip.effects() == [PAID]


@pytest.mark.parametrize("state", [waiting, running, confirmed, compensated, refused, parked])
def test_in_every_state_and_however_old_the_key_is_its_bookings(
    stage: Stage, state: States, settings: Any
) -> None:
    """Replays and conflicts alike: what is compared is the request, before anything is said of where its booking stands."""
    settings.HEARTBEAT_SECONDS = 25.0  # nothing but a key may touch the row
    api, body = ApiClient(), {**stage.small.stay(), "guest": "First Secret"}
    first = api.post(body, KEY).json()["id"]
    trip = Trip(Booking.objects.get().job_id, first, stage.sandbox)
    with state(stage, trip):
        with connection.cursor() as cursor:
            cursor.execute(OLD)
        trips.sweep()
        with conftest.role("retention"):
            assert retention.retain(timedelta(days=7)) == 0
        before = trips.snapshot(trip), claims.snapshot(trip.job_id)
        again = api.post(body, KEY)
        other = api.post({**body, "nights": 1, "guest": "Second Secret"}, KEY)
        assert (again.status_code, again.json()["id"]) == (202, first)
        assert again["Idempotent-Replayed"] == "true"
        assert_problem(other, 422, "/nights", "/guest")
        assert "Secret" not in other.content.decode()
        assert hotels.accepted_rows() == (1, 1, 1)
        assert (trips.snapshot(trip), claims.snapshot(trip.job_id)) == before


# --- Other routes -----------------------------------------------------------------------------------------------------


def test_on_another_route_the_same_key_answers_for_nothing_else(
    api: ApiClient, body: dict[str, Any]
) -> None:
    """A cancel goes by its address and its tag; a bulk's keys are those of single bookings."""
    one, other = api.book(body, KEY), api.book(body, "another")
    sent = {"Idempotency-Key": KEY, "If-Match": "*"}
    for cancelled in (one, other, other):
        answer = api.send("POST", f"/v1/bookings/{cancelled}/cancel", None, sent)
        assert (answer.status_code, answer.json()["id"]) == (202, cancelled)
        assert "Idempotent-Replayed" not in answer
        assert models.Job.objects.get(booking__id=cancelled).direction == "backward"
    quote = api.send("POST", "/v1/quotes", body, sent)
    assert (quote.status_code, "id" in quote.json()) == (200, False)
    assert_problem(api.send("PUT", "/v1/bookings", body, sent), 405)
    assert_problem(api.send("POST", "/v1/bookings?dry_run=1", body, sent), 400, "?dry_run")
    items = {"bookings": [{**body, "idempotency_key": KEY}]}
    (item,) = api.send("POST", "/v1/bookings/bulk", items, sent).json()["items"]
    assert (item["status"], item["replayed"], item["booking"]["id"]) == (202, True, one)
    assert hotels.accepted_rows() == (2, 2, 2)


def test_whoever_acts_for_the_tenant_means_the_same_booking(
    api: ApiClient, client_of: Any, body: dict[str, Any]
) -> None:
    first, colleague = api.book(body, KEY), client_of()
    assert colleague.key != api.key
    again = colleague.post(body, KEY)
    assert (again.json()["id"], again["Idempotent-Replayed"]) == (first, "true")
    assert_problem(colleague.post({**body, "nights": 1}, KEY), 422, "/nights")
    assert hotels.accepted_rows() == (1, 1, 1)

"""The second wall: the API's role sees one tenant's rows, whatever a view asks for, and none where no tenant is named."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar
from uuid import UUID, uuid4

import httpx2
import pytest
from django.db import ProgrammingError, connection, transaction
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from rest_framework.request import Request
from rest_framework.response import Response

from bookings.api.resource import Resource
from bookings.models import Booking, Scope
from ledger import models, sql, tenancy
from tests import drives, hotels, psql
from tests.api.conftest import ApiClient, as_the_api
from tests.bookings.conftest import provider, provider_url
from tests.conftest import Roles
from tests.webhooks import tenants
from tests.webhooks.conftest import receiver
from tests.webhooks.receivers import Receiver
from tests.webhooks.tenants import Told

__all__ = ["provider", "provider_url", "receiver"]
WALLED = [
    "ledger_job", "ledger_submission", "ledger_attempt", "ledger_receipt", "ledger_sighting", "ledger_checkpoint",
    "ledger_resolution", "bookings_booking", "bookings_webhookendpoint", "bookings_webhooksecret",
    "bookings_webhookdelivery",
]  # fmt: skip
FILLED = [t for t in WALLED if not t.endswith(("_sighting", "_resolution"))]
# A key is looked up before its tenant is known; the others are of the scheduler and hold counts and times.
OUTSIDE = {"bookings_apikey", "ledger_share", "ledger_permit"}
OF_SOMEBODY = """
SELECT c.relname::text, c.relrowsecurity FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND has_any_column_privilege('amends_api', c.oid, 'SELECT')
    AND a.attname IN ('tenant_id', 'job_id', 'endpoint_id', 'booking_id') GROUP BY 1, 2
"""


class Two:
    """Two tenants who have the same of everything."""

    def __init__(self, small: hotels.SmallHotel, receiver: Receiver) -> None:
        self.told = [Told(small, receiver, path) for path in ("/a", "/b")]
        self.bookings = [one.book() for one in self.told]
        self.ids: list[UUID] = [one.tenant.id for one in self.told]
        drives.drive_all()
        tenants.send()


@pytest.fixture
def two(small: hotels.SmallHotel, receiver: Receiver, provider: httpx2.Client) -> Two:
    return Two(small, receiver)


def count(session: Any, table: str) -> int:
    return int(session.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608  of WALLED


def test_every_table_that_names_somebody_is_behind_the_wall(database: None) -> None:
    found = dict(sql.fetch(OF_SOMEBODY))
    assert {name for name, is_walled in found.items() if is_walled} == set(WALLED)
    assert found.keys() - set(WALLED) == OUTSIDE


def test_a_session_sees_the_rows_of_the_tenant_that_it_names(two: Two) -> None:
    with (
        psql.connected() as owner,
        psql.connected("api", sees="") as api,
        psql.connected("worker") as worker,
    ):
        for table in WALLED:
            everything = count(owner, table)
            assert count(api, table) == 0, table
            seen = []
            for sees in (*map(str, two.ids), str(uuid4()), "everyone"):
                api.execute("BEGIN")
                api.execute(f"SET LOCAL amends.sees = '{sees}'")
                seen.append(count(api, table))
                api.execute("COMMIT")
            assert seen == [everything // 2, everything // 2, 0, everything], table
            assert count(api, table) == 0, table
            assert (everything > 0) == (table in FILLED), table
            assert count(worker, table) == everything


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_job SET acting_fence = fence, turned_by = 'me' WHERE tenant_id = %(other)s",
        "UPDATE bookings_webhookendpoint SET disabled_at = now(), disabled_reason = 'me' WHERE tenant_id = %(other)s",
        "DELETE FROM bookings_webhooksecret WHERE endpoint_id = %(endpoint)s",
        "UPDATE bookings_webhookdelivery SET lease_until = now() WHERE endpoint_id = %(endpoint)s",
    ],
)
def test_what_is_not_seen_is_not_changed(two: Two, statement: str) -> None:
    given = {"other": two.ids[1], "endpoint": two.told[1].endpoint_id}
    with psql.connected("api", sees="") as api:
        api.execute(f"SET amends.sees = '{two.ids[0]}'")
        assert api.execute(statement, given).rowcount == 0
        api.execute("SET amends.sees = 'everyone'")
        api.execute("BEGIN")
        assert api.execute(statement, given).rowcount == 1
        api.execute("ROLLBACK")


def test_nobody_writes_for_another_tenant(two: Two, small: hotels.SmallHotel) -> None:
    from bookings import submission  # noqa: PLC0415

    other = two.told[1].tenant
    before = hotels.accepted_rows()
    for sight in (tenancy.of(two.ids[0]), tenancy.of(uuid4())):
        with as_the_api(), sight, pytest.raises(ProgrammingError, match="row-level security"):
            submission.book(other, "planted", hotels.wanted(small))
    with as_the_api(), pytest.raises(ProgrammingError, match="row-level security"):
        submission.book(other, "planted", hotels.wanted(small))
    assert hotels.accepted_rows() == before


class Forgetful(Resource):
    """A planted bug: it asks for all bookings and all journals."""

    http_method_names = ["get"]
    scopes: ClassVar = {"GET": Scope.READ.value}

    def get(self, request: Request) -> Response:
        with transaction.atomic():
            jobs = [str(row[0]) for row in sql.fetch("SELECT job_id FROM ledger_receipt")]
        found = Booking.objects.select_related("job").order_by("id")
        return Response({"bookings": [str(one.job.id) for one in found], "jobs": sorted(set(jobs))})


def test_a_view_that_forgets_its_filter_shows_no_foreign_row(two: Two) -> None:
    for n in (0, 1):
        client = ApiClient(two.told[n].tenant.name)
        asked = RequestFactory().get("/planted", headers={"Authorization": f"Bearer {client.key}"})
        view = Forgetful.as_view()
        with as_the_api():
            own = [str(two.bookings[n].job_id)]
            assert view(asked).data == {"bookings": own, "jobs": own}
        assert len(view(asked).data["bookings"]) == 2  # the control: the owner is not bound


def test_a_session_of_staff_opens_nothing_in_the_api(two: Two, as_role: Roles) -> None:
    from tests.admin.conftest import logged_in  # noqa: PLC0415

    staff = logged_in("sam").client
    api = ApiClient(two.told[0].tenant.name)
    for n, status in ((0, 200), (1, 404)):
        path = f"/v1/bookings/{two.bookings[n].id}"
        with as_role("api"):
            sent = {"Authorization": f"Bearer {api.key}"}
            assert staff.get(path, headers=sent).status_code == status
            page = staff.get(f"/admin/ledger/job/{two.bookings[n].job_id}/change/")
            assert page.status_code == 200


@pytest.fixture
def api_role(two: Two) -> Iterator[None]:
    with as_the_api():
        yield


def jobs() -> list[UUID]:
    return [row[0] for row in sql.fetch("SELECT tenant_id FROM ledger_job")]


def test_the_innermost_sight_holds_and_nothing_outlasts_it(two: Two, api_role: None) -> None:
    first, second = two.ids
    assert jobs() == []
    with tenancy.of(first):
        assert jobs() == [first]
        with transaction.atomic():
            with tenancy.everyone():
                assert set(jobs()) == {first, second}
            assert jobs() == [first]
            with pytest.raises(ProgrammingError), transaction.atomic():
                sql.fetch("SELECT nothing_like_it")
            assert jobs() == [first]
            with tenancy.of(second):
                assert jobs() == [second]
        with sql.snapshot():
            assert jobs() == [first]
            assert sql.fetch("SHOW transaction_isolation") == [("repeatable read",)]
        assert jobs() == [first]
    assert jobs() == []
    assert sql.fetch("SELECT current_setting('amends.sees', true)") in ([("",)], [(None,)])


def test_it_costs_no_round_trip_and_keeps_what_a_statement_says(two: Two, api_role: None) -> None:
    with tenancy.of(two.ids[0]), CaptureQueriesContext(connection) as captured:
        assert Booking.objects.filter(guest="").count() == 1
        with connection.cursor() as cursor:
            cursor.execute("SELECT tenant_id FROM ledger_job WHERE saga <> '100%'")
            assert (cursor.rowcount, cursor.description[0].name) == (1, "tenant_id")
            assert cursor.fetchone() == (two.ids[0],)
    assert len(captured) == 2


# --- What it costs ---------------------------------------------------------------------------------------------------

MANY = 6_000
FILL = """
WITH job AS (
    INSERT INTO ledger_job (id, tenant_id, saga, version, input, lane, state, finished_at)
    SELECT uuidv7(), %(tenant)s, 'trip', 1, '{}', 'forward', 'confirmed', now() FROM generate_series(1, %(many)s)
    RETURNING id)
INSERT INTO bookings_booking (job_id, tenant_id, hotel_id, room_type_id, arrival, nights, guest, client_reference,
    amount_minor, currency)
SELECT id, %(tenant)s, %(hotel)s, %(room)s, '2030-01-01', 1, '', '', 1, 'EUR' FROM job
"""
MORE = """
SET session_replication_role = replica;
INSERT INTO ledger_submission (tenant_id, key, fingerprint, request, job_id)
    SELECT tenant_id, id::text, '', '{}', id FROM ledger_job WHERE input = '{}';
INSERT INTO ledger_attempt (job_id, seq, fence, step, direction, n, arguments, fingerprint)
    SELECT id, 0, 0, s::text, 'forward', 1, '{}', '' FROM ledger_job, generate_series(1, 3) s WHERE input = '{}';
INSERT INTO ledger_receipt (job_id, seq, fence, step, direction, n, outcome, evidence)
    SELECT job_id, 0, 0, step, direction, 1, 'confirmed', '{}' FROM ledger_attempt WHERE arguments = '{}';
INSERT INTO ledger_sighting (job_id, step, direction, n, kind, outcome, evidence)
    SELECT id, '1', 'forward', 1, 'probe', 'confirmed', '{}' FROM ledger_job WHERE input = '{}';
INSERT INTO ledger_resolution (job_id, seq, fence, step, direction, act, decided_by, reason, evidence)
    SELECT id, 0, 0, '1', 'forward', 'ask', 'sam', '', '{}' FROM ledger_job WHERE input = '{}';
SET session_replication_role = origin;
"""
SHAPE = re.compile(r"(?:->  )?([A-Z][^(]*?)  \(cost")


def shape(statement: str) -> list[str]:
    """The nodes of a plan, an index however it is read; without what reads the setting and the row of a job."""
    rows = [row[0] for row in sql.fetch(f"EXPLAIN {statement}")]
    assert not [line for line in rows if "hashed SubPlan" in line], (
        rows
    )  # it reads all the jobs of a tenant
    found, hidden = [], None
    for line in rows:
        depth = len(line) - len(line.lstrip())
        if hidden is not None and depth > hidden:
            continue
        hidden = depth if re.match(r"\s*(InitPlan|SubPlan) ", line) else None
        if hidden is None and (node := SHAPE.search(line)):
            by_index = re.search(r"Index (?:Only )?Scan (?:Backward )?(?:using|on) (\S+)", node[1])
            found.append(f"by {by_index[1]}" if by_index else node[1])
    return [node for node in found if not node.startswith("Bitmap Heap")]


def asked(two: Two, body: dict[str, Any]) -> list[str]:
    """What the hot routes ask of the database."""
    api = ApiClient(two.told[0].tenant.name)
    own = f"/v1/bookings/{two.bookings[0].id}"
    sent: list[Callable[[], Any]] = [lambda: api.post(body, "one"), lambda: api.post(body, "one")]
    log = f"/v1/webhooks/{two.told[0].endpoint_id}/deliveries"
    read = (
        own,
        f"{own}/journal",
        f"{own}/operations",
        "/v1/bookings",
        "/v1/report?created_before=2020-01-01T00:00:00Z",
        log,
    )
    sent += [partial(api.get, path) for path in read]
    with CaptureQueriesContext(connection) as captured:
        statuses = [one().status_code for one in sent]
    assert statuses == [202, 202, 200, 200, 200, 200, 200, 200]
    found = [one["sql"].partition("; ")[2] for one in captured if "amends.sees" in one["sql"]]
    return [one for one in found if re.match(r"\s*(SELECT|WITH|INSERT|UPDATE)", one)]


def test_the_wall_changes_no_plan(two: Two, body: dict[str, Any], small: hotels.SmallHotel) -> None:
    of = {"hotel": small.hotel.pk, "room": small.room_type.pk, "many": MANY}
    with psql.connected() as owner:
        for tenant in two.ids:
            owner.execute(FILL, {**of, "tenant": tenant})
        owner.execute(MORE)
        owner.execute("ANALYZE")
    statements = asked(two, body)
    assert len(statements) > 12
    for statement in statements:
        free = shape(statement)
        with as_the_api(), tenancy.of(two.ids[0]):
            assert shape(statement) == free, statement
    assert models.Job.objects.count() > 2 * MANY

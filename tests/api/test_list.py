"""The list of a tenant's bookings: page by page without gap or repeat, only its own, and never more work than a page's."""

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection

from bookings import listings
from bookings.listings import Period, Wanted
from bookings.models import Booking
from ledger import tenancy, turns
from tests import drives, hotels, psql
from tests.api.problems import assert_problem
from tests.conftest import Roles

MANY = 30_000
FILL = """
WITH made AS (
    INSERT INTO ledger_job (id, tenant_id, saga, version, input, lane, state, finished_at)
    SELECT uuidv7(make_interval(secs => -n)), %(tenant)s, 'bookings.trip', 1, '{}', 'forward', 'confirmed', now()
    FROM generate_series(1, %(many)s) n RETURNING id
), numbered AS (SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM made)
INSERT INTO bookings_booking (id, tenant_id, job_id, hotel_id, room_type_id, arrival, nights, guest, client_reference,
    amount_minor, currency, created_at)
SELECT uuidv7(make_interval(secs => -n)), %(tenant)s, id, %(hotel)s, %(room)s, current_date + (n %% 300)::int, 1, '',
    'ref-' || n, 1, 'EUR', now() - make_interval(secs => n) FROM numbered
"""


def listed(api: Any, **given: Any) -> Any:
    response = api.get(f"/v1/bookings?{urlencode({k.rstrip('_'): v for k, v in given.items()})}")
    assert response.status_code == 200, response.content
    return response.json()


def walk(api: Any, **given: Any) -> list[list[str]]:
    """The ids of all pages."""
    found, pages = listed(api, **given), []
    while True:
        pages.append([item["id"] for item in found["items"]])
        if found["next"] is None:
            return pages
        found = api.get(found["next"]).json()


@pytest.fixture
def ids(api: Any, small: hotels.SmallHotel) -> list[str]:
    """Five bookings, newest first; the third has gone back and ended."""
    made = [api.book(small.stay(n), f"key-{n}") for n in range(5)]
    assert turns.cancel(Booking.objects.get(id=made[2]).job_id, by="test", reason="for the list")
    return made[::-1]


def test_pages_are_newest_first_without_gap_or_repeat(api: Any, ids: list[str]) -> None:
    assert walk(api) == [ids]
    assert walk(api, limit=2) == [ids[:2], ids[2:4], ids[4:]]
    assert walk(api, limit=5) == [ids]


def test_what_is_booked_meanwhile_moves_no_page(
    api: Any, ids: list[str], small: hotels.SmallHotel
) -> None:
    first = listed(api, limit=2)
    api.book(small.stay(5), "later")
    assert [item["id"] for item in api.get(first["next"]).json()["items"]] == ids[2:4]


def test_an_item_is_the_booking_itself(api: Any, ids: list[str]) -> None:
    (item, *_) = listed(api)["items"]
    assert item == api.get(f"/v1/bookings/{ids[0]}").json()


def test_nobody_sees_another_tenants(api: Any, client_of: Any, ids: list[str]) -> None:
    assert listed(client_of("other")) == {"items": [], "next": None}
    assert_problem(client_of("other").get("/v1/bookings?tenant=agent"), 400, "?tenant")
    theirs = client_of("other").get("/v1/bookings", {"X-Tenant": "agent"})
    assert theirs.json()["items"] == []


def test_each_filter_finds_what_it_says(api: Any, ids: list[str], small: hotels.SmallHotel) -> None:
    backward = ids[2]
    assert walk(api, state="compensating") == [[backward]]
    assert walk(api, state="in_progress") == [[one for one in ids if one != backward]]
    assert walk(api, class_="compensation_pending") == [[backward]]
    assert walk(api, state="in_progress", class_="compensation_pending") == [[]]
    arrivals = [(small.first + timedelta(days=n)).isoformat() for n in range(5)]
    assert walk(api, arrival_from=arrivals[1], arrival_to=arrivals[3]) == [ids[1:4]]
    drives.drive_all()
    assert walk(api, state="refused", class_="confirmed_failure") == [[backward]]


def test_a_booking_is_found_by_the_clients_own_word_for_it(api: Any, body: dict[str, Any]) -> None:
    wanted = [api.book({**body, "client_reference": "trip 7 é"}, f"{n}") for n in range(3)]
    api.book({**body, "client_reference": "trip 8"}, "other")
    assert walk(api, client_reference="trip 7 é", limit=2) == [wanted[:0:-1], wanted[:1]]
    assert walk(api, client_reference="trip") == [[]]


def test_periods_meet_without_gap_or_overlap(api: Any, ids: list[str]) -> None:
    at = listed(api)["items"][2]["created_at"]
    later, earlier = walk(api, created_after=at), walk(api, created_before=at)
    assert (later, earlier) == ([ids[:3]], [ids[3:]])


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("limit=0", "?limit"), ("limit=201", "?limit"), ("limit=-1", "?limit"), ("limit=1e3", "?limit"),
        ("limit=%D9%A1", "?limit"), ("limit=" + "9" * 5_000, ""), ("limit=", "?limit"), ("limit=1&limit=2", "?limit"),
        ("limit=+1", "?limit"), ("limit=01", "?limit"), ("page=2", "?page"), ("offset=1", "?offset"),
        ("ordering=guest", "?ordering"), ("sort=-id", "?sort"), ("q=x", "?q"), ("format=api", "?format"),
        ("state=waiting", "?state"), ("state=%00", "?state"), ("state=", "?state"), ("state=CONFIRMED", "?state"),
        ("class=x", "?class"), ("class", "?class"), ("%00=x", "?\ufffd"), ("guest=a", "?guest"),
        ("created_after=2026-13-01T00:00:00Z", "?created_after"), ("created_after=2026-01-01", "?created_after"),
        ("created_after=2026-01-01T00:00:00", "?created_after"), ("created_after=0001-01-01T00:00:00Z", "?created_after"),
        ("created_after=2026-01-01T00:00:00+01:00", "?created_after"), ("created_before=now", "?created_before"),
        ("created_before=2026-01-01T24:00:01Z", "?created_before"),
        ("created_after=2026-01-02T00:00:00Z&created_before=2026-01-01T00:00:00Z", "?created_before"),
        ("arrival_from=2026-W01-1", "?arrival_from"), ("arrival_to=9999-12-31", "?arrival_to"),
        ("arrival_from=2026-01-02&arrival_to=2026-01-01", "?arrival_to"),
        ("client_reference=", "?client_reference"), ("client_reference=%00", "?client_reference"),
        ("client_reference=a%0d%0ab", "?client_reference"), ("client_reference=" + "x" * 201, "?client_reference"),
        ("client_reference=%ff", "?"), ("client_reference=%ed%a0%80", "?"),
        ("cursor=garbage", "?cursor"), ("cursor=", "?cursor"), ("cursor=a.b.c", "?cursor"),
    ],
)  # fmt: skip
def test_a_bad_parameter_is_400_and_named(api: Any, query: str, named: str) -> None:
    status = 400 if named else 414
    found = assert_problem(api.get(f"/v1/bookings?{query}"), status)
    assert [error["pointer"] for error in found.get("errors", [])] == ([named] if named else [])


def test_a_cursor_is_good_for_its_tenant_and_filters_only(
    api: Any, client_of: Any, ids: list[str]
) -> None:
    following = listed(api, limit=2, state="in_progress")["next"]
    cursor = following.partition("cursor=")[2].partition("&")[0]
    assert api.get(following).status_code == 200
    assert api.get(following.replace("limit=2", "limit=3")).status_code == 200
    assert_problem(client_of("other").get(following), 400, "?cursor")
    for other in ("state=parked&", "", "state=in_progress&class=in_progress&"):
        assert_problem(api.get(f"/v1/bookings?{other}cursor={cursor}"), 400, "?cursor")
    of_all = listed(api, limit=2)["next"]
    assert_problem(api.get(of_all.replace("/bookings?", "/hotels?")), 400, "?cursor")
    assert_problem(api.get(following.replace(cursor, cursor[:-1])), 400, "?cursor")


def test_a_page_that_found_too_little_says_where_to_go_on(
    api: Any, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "LOOKED_AT_MAX", 2)
    monkeypatch.setattr(listings, "JUDGED_MAX", 2)
    assert walk(api, state="compensating") == [[], [ids[2]], []]
    assert walk(api, class_="compensation_pending") == [[], [ids[2]], []]
    assert walk(api, state="in_progress", limit=1) == [[one] for one in (*ids[:2], *ids[3:])]


@pytest.fixture
def many(small: hotels.SmallHotel) -> Any:
    """A tenant with very many bookings beside another, who has as many."""
    tenants = [hotels.tenant("busy"), hotels.tenant("other")]
    with psql.connected() as owner:
        for tenant in tenants:
            of = {"tenant": tenant.id, "hotel": small.hotel.pk, "room": small.room_type.pk}
            owner.execute(FILL, {**of, "many": MANY})
        owner.execute("ANALYZE ledger_job, bookings_booking")
    return tenants[0]


def test_a_page_reads_what_it_shows_and_no_other_row(many: Any, as_role: Roles) -> None:
    middle = Booking.objects.filter(tenant=many).order_by("id")[MANY // 2]
    periods = Period(created_after=middle.created_at), Period(created_before=middle.created_at)
    for wanted in (
        Wanted(),
        *(Wanted(period=p) for p in periods),
        Wanted(client_reference="ref-9"),
    ):
        for after in (None, middle.id):
            with as_role("api"), tenancy.of(many.id):
                rows = listings.scan(many.id, wanted, after)[:51]
                (plan,) = json.loads(rows.explain(analyze=True, format="json"))
            nodes = list(_nodes(plan["Plan"]))
            assert not [n for n in nodes if n["Node Type"] in ("Seq Scan", "Sort")], plan
            assert sum(n.get("Rows Removed by Filter", 0) for n in nodes) == 0, plan
            assert max(n["Actual Rows"] for n in nodes) <= 51


def test_the_deepest_page_costs_as_little_as_the_first(many: Any, client_of: Any) -> None:
    api = client_of("busy")
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '2s'")
    for given in ({"state": "parked"}, {"class_": "settled_by_hand"}, {"limit": 200}):
        found = listed(api, **given)
        assert found["next"]
        assert api.get(found["next"]).status_code == 200


def _nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)

"""Many bookings in one request: each item gets what it would have got alone, and no two requests wait for each other in a
circle.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError

from bookings import submission
from bookings.api import parsers
from bookings.models import Booking, Scope
from ledger import crashpoints, tickets
from tests import hotels, psql
from tests.api.conftest import ApiClient
from tests.api.problems import MEMBERS, assert_problem
from tests.hotels import accepted_rows as rows

PATH = "/v1/bookings/bulk"
HOLD_KEY = """
INSERT INTO ledger_submission (tenant_id, key, fingerprint, request) VALUES (%s, %s, sha256(''), '{}')
"""


@pytest.fixture
def rings(database: None) -> Iterator[list[str]]:
    rung: list[str] = []
    with tickets.heard_by(rung.append):
        yield rung


def items(body: dict[str, Any], *keys: str, **more: Any) -> list[dict[str, Any]]:
    return [{**body, "idempotency_key": key, **more} for key in keys]


def send(api: ApiClient, *sent: Any) -> list[dict[str, Any]]:
    answer = api.send("POST", PATH, {"bookings": list(sent)})
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def statuses(found: list[dict[str, Any]]) -> list[int]:
    return [item["status"] for item in found]


def test_each_is_accepted_under_its_own_key_and_can_be_read(
    api: ApiClient, body: dict[str, Any], rings: list[str]
) -> None:
    found = send(api, *items(body, "c", "a", "b"))
    assert [item["idempotency_key"] for item in found] == ["c", "a", "b"]
    assert [(item["status"], item["replayed"]) for item in found] == [(202, False)] * 3
    assert rows() == (3, 3, 3)
    for item in found:
        seen = api.get(item["booking"]["links"]["self"]).json()
        assert (seen["id"], seen["state"]) == (item["booking"]["id"], "in_progress")
        again = api.post(body, item["idempotency_key"])
        assert (again["Idempotent-Replayed"], again.json()["id"]) == ("true", seen["id"])


def test_an_item_gets_what_it_would_have_got_alone_whatever_its_neighbours_get(
    api: ApiClient, body: dict[str, Any]
) -> None:
    known = api.book(body, "known")
    api.book({**body, "nights": 1}, "used")
    wrong_price = {"expected_total": {"amount_minor": 1, "currency": "EUR"}}
    sent = [
        *items(body, "new", "known", "used"),
        *items(body, "dear", **wrong_price),
        *items(body, "nowhere", hotel="OTHER"),
        *items(body, "long", nights="2", colour="red"),
        {**body},
        {**body, "idempotency_key": "two words"},
        "a booking",
        *items(body, "last"),
    ]
    found = send(api, *sent)
    assert statuses(found) == [202, 202, 422, 422, 422, 400, 400, 400, 400, 202]
    assert [item.get("replayed") for item in found[:3]] == [False, True, None]
    assert found[1]["booking"]["id"] == known
    assert [item["idempotency_key"] for item in found[5:9]] == ["long", None, "two words", None]
    assert rows() == (4, 4, 4)
    assert all(api.post(body, key).status_code == 202 for key in ("dear", "nowhere", "long"))


@pytest.mark.parametrize(
    ("change", "pointers"),
    [
        ({"nights": "2", "colour": "red"}, {"/nights", "/colour"}),
        ({"hotel": "OTHER"}, {"/hotel"}),
        ({"arrival": "2001-01-01"}, {"/arrival"}),
    ],
)
def test_its_problem_is_the_one_that_it_would_have_got_alone(
    api: ApiClient, body: dict[str, Any], change: dict[str, Any], pointers: set[str]
) -> None:
    alone = api.post({**body, **change}, "alone").json()
    (item,) = send(api, *items(body, "key", **change))
    problem = item["problem"]
    assert set(problem) == MEMBERS | {"errors"}
    assert {error["pointer"] for error in problem["errors"]} == pointers
    assert {**problem, "instance": ""} == {**alone, "instance": ""}
    assert item["status"] == problem["status"]
    assert rows() == (0, 0, 0)


def test_of_a_key_named_twice_the_first_speaks(api: ApiClient, body: dict[str, Any]) -> None:
    sent = [*items(body, "z", "key", "a", "key"), *items(body, "key", nights=1)]
    found = send(api, *sent)
    assert statuses(found) == [202, 202, 202, 202, 422]
    assert [item["replayed"] for item in found[:4]] == [False, False, False, True]
    assert found[3]["booking"] == found[1]["booking"]
    assert found[4]["problem"]["errors"][0]["pointer"] == "/nights"
    assert rows() == (3, 3, 3)


def test_a_key_named_twice_in_two_transactions_speaks_once(
    api: ApiClient, body: dict[str, Any]
) -> None:
    others = [f"{n:03}" for n in range(submission.CHUNK)]
    found = send(api, *items(body, "key", *others), *items(body, "key", nights=1))
    assert statuses(found) == [202] * (submission.CHUNK + 1) + [422]
    assert rows() == (submission.CHUNK + 1,) * 3


def test_the_same_bulk_again_is_all_replays_and_makes_nothing(
    api: ApiClient, body: dict[str, Any]
) -> None:
    sent = items(body, *(f"key-{n}" for n in range(submission.CHUNK + 10)))
    first, again = send(api, *sent), send(api, *reversed(sent))
    assert [item["replayed"] for item in again] == [True] * len(sent)
    assert [i["booking"] for i in again[::-1]] == [i["booking"] for i in first]
    assert rows() == (len(sent),) * 3


def test_all_of_it_rings_once_and_replays_ring_for_nobody(
    api: ApiClient, body: dict[str, Any], rings: list[str]
) -> None:
    sent = items(body, *(f"key-{n}" for n in range(submission.CHUNK * 2 + 1)))
    send(api, *sent)
    assert rings == ["forward"]
    send(api, *sent)
    assert rings == ["forward"]


@pytest.mark.parametrize(
    ("sent", "pointer"),
    [
        ([], ""),
        ({}, "/bookings"),
        ({"bookings": []}, "/bookings"),
        ({"bookings": {}}, "/bookings"),
        ({"bookings": [1] * 501}, "/bookings"),
        ({"bookings": [1], "tenant": "other"}, "/tenant"),
    ],
)
def test_a_body_without_items_to_speak_of_is_refused_whole(
    api: ApiClient, body: dict[str, Any], sent: Any, pointer: str
) -> None:
    assert_problem(api.send("POST", PATH, sent), 400, pointer)
    assert rows() == (0, 0, 0)


def test_five_hundred_are_taken_and_a_mebibyte_is_the_most(
    api: ApiClient, body: dict[str, Any]
) -> None:
    long = {"guest": "x" * 200, "client_reference": "y" * 200, "colour": "red"}
    sent = items(body, *(f"key-{n}" for n in range(500)), **long)
    assert len(json.dumps(sent)) > parsers.BYTES_MAX  # more than any other route takes
    assert statuses(send(api, *sent)) == [400] * 500  # each is read
    assert rows() == (0, 0, 0)
    whole = b'{"bookings": [' + b" " * 1024 * 1024 + b"]}"
    assert_problem(api.send("POST", PATH, whole), 413)


def test_a_key_that_may_only_read_books_nothing(
    client_of: Callable[..., ApiClient], body: dict[str, Any]
) -> None:
    reader = client_of(scopes=[str(Scope.READ)])
    assert_problem(reader.send("POST", PATH, {"bookings": items(body, "key")}), 403)
    assert rows() == (0, 0, 0)


def failing_at(nth: int) -> Callable[[str], None]:
    reached = 0

    def fail(_point: str) -> None:
        nonlocal reached
        reached += 1
        if reached == nth:
            raise OperationalError("the server is gone")

    return fail


@pytest.mark.parametrize("point", ["booking.before_insert", "booking.after_insert"])
def test_where_the_database_goes_away_half_way_the_rest_is_unavailable_and_the_same_bulk_goes_on(
    api: ApiClient, body: dict[str, Any], rings: list[str], point: str
) -> None:
    chunk = submission.CHUNK
    sent = items(body, *(f"key-{n:03}" for n in range(chunk * 2 + 1)))
    with crashpoints.armed(point, failing_at(2)):
        found = send(api, *sent)
    assert statuses(found) == [202] * chunk + [503] * (chunk + 1)
    assert rows() == (chunk,) * 3
    assert rings == ["forward"]
    again = send(api, *sent)
    assert [item["replayed"] for item in again] == [True] * chunk + [False] * (chunk + 1)
    assert rows() == (len(sent),) * 3


def test_while_it_waits_for_one_key_it_holds_none_of_the_later_ones(
    small: hotels.SmallHotel,
) -> None:
    tenant, request = hotels.tenant(), hotels.wanted(small)
    wanted = [(key, request) for key in ("c", "b", "a")]
    with psql.connected(autocommit=False) as other, psql.connected() as watch:
        other.execute(HOLD_KEY, [tenant.id, "a"])
        waiting = psql.Thread(lambda: submission.book_each(tenant, wanted))
        psql.await_lock_wait(watch)
        other.execute("SET lock_timeout = '100ms'")
        for key in ("b", "c"):
            other.execute(HOLD_KEY, [tenant.id, key])
        other.rollback()
        assert [made(one) for one in waiting.result()] == [True] * 3
    assert rows() == (3, 3, 3)


def made(one: submission.Booked | Exception) -> bool:
    assert isinstance(one, submission.Booked), one
    return one.created


def book_each_of(
    tenant: Any, orders: Sequence[Sequence[submission.Wanted]], number: int
) -> list[submission.Booked | Exception]:
    return submission.book_each(tenant, orders[number])


def test_two_that_share_keys_in_opposite_order_meet_in_no_deadlock(
    small: hotels.SmallHotel,
) -> None:
    tenant, request = hotels.tenant(), hotels.wanted(small)
    for turn in range(8):
        wanted = [(f"{turn}-{n}", request) for n in range(submission.CHUNK)]
        orders = (wanted, wanted[::-1])
        both = psql.together(2, partial(book_each_of, tenant, orders))
        first, second = ([made(one) for one in found] for found in both)
        assert [a ^ b for a, b in zip(first, second[::-1], strict=True)] == [True] * len(wanted)
    assert rows() == (8 * submission.CHUNK,) * 3


def test_it_runs_with_the_privileges_of_the_api(
    api: ApiClient, body: dict[str, Any], as_role: Any
) -> None:
    with as_role("api"):
        assert statuses(send(api, *items(body, "a", "b"), *items(body, "a", nights=1))) == [
            202,
            202,
            422,
        ]
    assert Booking.objects.count() == 2

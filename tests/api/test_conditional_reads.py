"""Reading again costs nothing where nothing changed, and waiting for news holds neither a transaction nor all threads."""

from typing import Any

import pytest

from bookings import saga
from bookings.api import waiting
from bookings.models import Booking
from ledger import turns
from tests import claims, drives, psql
from tests.api.problems import assert_problem

NOBODY_IN_A_TRANSACTION = """
SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database()
    AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND xact_start IS NOT NULL)
"""


@pytest.fixture
def path(api: Any, body: dict[str, Any]) -> str:
    return f"/v1/bookings/{api.book(body)}"


def change() -> None:
    assert turns.cancel(Booking.objects.get().job_id, by="test", reason="so that there is news")


def await_waiters(count: int) -> None:
    with psql.connected() as session:
        for _ in range(1_000):
            if waiting.waiters.count == count:
                return
            session.execute("SELECT pg_sleep(0.01)")
    raise AssertionError(f"not {count} waiters but {waiting.waiters.count}")


def test_an_answer_is_tagged_by_what_it_says(api: Any, path: str) -> None:
    first, again = api.get(path), api.get(path)
    assert first["ETag"] == again["ETag"]
    assert first["ETag"].startswith('"')
    change()
    later = api.get(path)
    assert (later["ETag"], later.json()["state"]) != (first["ETag"], first.json()["state"])


def test_a_promotion_and_a_claim_change_no_tag(api: Any, path: str) -> None:
    first = api.get(path)
    (claimed,) = claims.claim(saga.trip)
    assert drives.state(claimed.id) == "running"
    assert api.get(path)["ETag"] == first["ETag"]


@pytest.mark.parametrize("spelled", ["{tag}", "W/{tag}", '"other", {tag}', "*", " {tag} "])
def test_what_the_client_has_is_304_without_a_body(api: Any, path: str, spelled: str) -> None:
    tag = api.get(path)["ETag"]
    response = api.get(path, {"If-None-Match": spelled.format(tag=tag)})
    assert (response.status_code, response.content) == (304, b"")
    assert response["ETag"] == tag
    assert response["Cache-Control"] == "no-store"
    assert "Content-Length" not in response


def test_head_tells_the_length_of_what_it_leaves_out(api: Any, path: str) -> None:
    read, head = api.get(path), api.send("HEAD", path)
    assert head.content == b""
    assert head["Content-Length"] == str(len(read.content))
    assert head["ETag"] == read["ETag"]


@pytest.mark.parametrize(
    "given", ["x", '"', '"a" "b"', 'w/"a"', '"a",', '"\u20ac"', '"' + "x" * 5_000 + '"']
)
def test_what_is_no_tag_is_400(api: Any, path: str, given: str) -> None:
    assert_problem(api.get(path, {"If-None-Match": given}), 400, "If-None-Match")


def test_another_tenants_tag_tells_nothing(api: Any, client_of: Any, path: str) -> None:
    tag = api.get(path)["ETag"]
    assert_problem(client_of("other").get(path, {"If-None-Match": tag}), 404)


def test_a_wait_ends_with_the_news(api: Any, path: str) -> None:
    tag = api.get(path)["ETag"]
    headers = {"If-None-Match": tag, "Prefer": "respond-async, wait=25"}
    waiter = psql.Thread(lambda: api.get(path, headers))
    await_waiters(1)
    with psql.connected() as session:
        psql.await_true(session, NOBODY_IN_A_TRANSACTION)
    assert waiter.is_alive()
    change()
    response = waiter.result(10)
    assert (response.status_code, response.json()["state"]) == (200, "compensating")
    assert response["Preference-Applied"] == "wait=25"
    assert response["ETag"] != tag


def test_without_a_tag_a_wait_lasts_until_the_booking_has_ended(api: Any, path: str) -> None:
    waiter = psql.Thread(lambda: api.get(path, {"Prefer": "wait=25"}))
    await_waiters(1)
    change()  # it goes back: news, and no end
    drives.drive_all()
    response = waiter.result(10)
    assert (response.status_code, response.json()["state"]) == (200, "refused")


def test_a_wait_for_nothing_ends_in_time_with_what_there_is(api: Any, path: str) -> None:
    tag = api.get(path)["ETag"]
    response = api.get(path, {"If-None-Match": tag, "Prefer": 'wait="1"'})
    assert (response.status_code, response["Preference-Applied"]) == (304, "wait=1")


def test_news_that_are_there_are_not_waited_for(api: Any, path: str) -> None:
    response = psql.Thread(lambda: api.get(path, {"If-None-Match": '"old"', "Prefer": "wait=25"}))
    assert response.result(10).status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        *(
            "wait",
            "wait=0",
            "wait=-1",
            "wait=x",
            "wait=1.5",
            "wait=\u0661",
            'x="a, wait=5"',
            "waits=5",
        ),
        *('"' + '\\"' * 400_000, '"' + "\\" * 800_001, "x," * 400_000 + "wait=5"),  # in no time
    ],
)
def test_a_preference_that_we_do_not_understand_is_ignored(api: Any, path: str, given: str) -> None:
    response = psql.Thread(lambda: api.get(path, {"Prefer": given})).result(10)
    assert response.status_code == 200
    assert "Preference-Applied" not in response


def test_nobody_waits_longer_than_the_longest(api: Any, path: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "SECONDS_MAX", 1)
        response = psql.Thread(lambda: api.get(path, {"Prefer": "wait=999999999"})).result(10)
    assert response["Preference-Applied"] == "wait=1"


def test_beyond_the_places_the_answer_comes_at_once(api: Any, path: str, settings: Any) -> None:
    settings.WAITERS_MAX = 1
    tag = api.get(path)["ETag"]
    waiter = psql.Thread(lambda: api.get(path, {"If-None-Match": tag, "Prefer": "wait=25"}))
    await_waiters(1)
    second = psql.Thread(lambda: api.get(path, {"If-None-Match": tag, "Prefer": "wait=25"}))
    response = second.result(10)
    assert response.status_code == 304
    assert "Preference-Applied" not in response
    change()
    assert waiter.result(10).status_code == 200
    assert waiting.waiters.count == 0

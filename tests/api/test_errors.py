"""Errors that no client made: a database that is away, a bug, a path that is not there."""

import json
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.http import JsonResponse
from django.test import RequestFactory

from bookings.api import auth, problems
from bookings.models import ApiKey
from config import settings
from ledger import crashpoints, outcomes
from tests import hotels, psql
from tests.api.problems import assert_problem


def raising(error: Exception) -> Any:
    def crash(_point: str) -> None:
        raise error

    return crash


def test_a_database_that_is_away_is_503_and_the_same_request_goes_on(
    api: Any, body: dict[str, Any]
) -> None:
    with crashpoints.armed("booking.before_insert", raising(OperationalError("gone"))):
        response = api.post(body)
    found = assert_problem(response, 503)
    assert response["Retry-After"] == str(problems.RETRY_AFTER_SECONDS)
    assert "gone" not in found["detail"]
    assert hotels.accepted_rows() == (0, 0, 0)
    assert api.post(body).status_code == 202


def test_a_backend_ended_by_the_server_is_503(api: Any, body: dict[str, Any]) -> None:
    def end_our_backend(_point: str) -> None:
        pid = connection.connection.info.backend_pid
        with psql.connected() as owner:
            owner.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    with crashpoints.armed("booking.before_insert", end_our_backend):
        assert_problem(api.post(body), 503)
    connection.close()
    assert hotels.accepted_rows() == (0, 0, 0)


def reads_only(_point: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")


def test_a_server_that_only_reads_is_503_and_its_connection_is_not_kept(
    api: Any, body: dict[str, Any]
) -> None:
    with crashpoints.armed("booking.before_insert", reads_only):
        assert_problem(api.post(body, "key"), 503)
    assert hotels.accepted_rows() == (0, 0, 0)
    assert api.post(body, "key").status_code == 202


def test_of_many_in_one_request_each_is_503_on_a_server_that_only_reads(
    api: Any, body: dict[str, Any]
) -> None:
    items = [{**body, "idempotency_key": f"key-{n}"} for n in range(2)]
    with crashpoints.armed("booking.before_insert", reads_only):
        answer = api.send("POST", "/v1/bookings/bulk", {"bookings": items})
    assert [item["status"] for item in answer.json()["items"]] == [503, 503]
    assert hotels.accepted_rows() == (0, 0, 0)


def test_a_key_is_as_good_on_a_server_that_only_reads(api: Any, body: dict[str, Any]) -> None:
    booking = api.book(body)
    auth.lookups.forget(f"Bearer {api.key}")
    ApiKey.objects.update(last_used_at=None)
    reads_only("")
    try:
        assert api.get(f"/v1/bookings/{booking}").status_code == 200
    finally:
        connection.close()
    assert ApiKey.objects.get().last_used_at is None


def test_while_keys_cannot_be_looked_up_nobody_is_let_in(api: Any, body: dict[str, Any]) -> None:
    auth.lookups.forget(f"Bearer {api.key}")
    with psql.connected() as owner, owner.transaction(), connection.cursor() as cursor:
        owner.execute("LOCK TABLE bookings_apikey")
        cursor.execute("SET lock_timeout = '50ms'")
        assert_problem(api.post(body), 503)
        assert_problem(api.get("/v1/bookings"), 503)
    connection.close()
    assert hotels.accepted_rows() == (0, 0, 0)


def test_what_takes_too_long_to_find_is_503_within_the_roles_limit(
    api: Any, body: dict[str, Any]
) -> None:
    api.book(body)
    with psql.connected() as owner, owner.transaction(), connection.cursor() as cursor:
        owner.execute("LOCK TABLE bookings_booking")
        cursor.execute("SET statement_timeout = '50ms'")
        for path in ("/v1/bookings", "/v1/bookings?class=confirmed"):
            assert_problem(api.get(path), 503)
    connection.close()
    limit = f"statement_timeout={int(settings.STATEMENT_SECONDS * 1000)}"
    assert limit in settings.database("api")["OPTIONS"]["options"]


def test_a_bug_is_500_and_shows_nothing(api: Any, body: dict[str, Any]) -> None:
    with crashpoints.armed("booking.before_insert", raising(RuntimeError("secret"))):
        response = api.post(body)
    assert_problem(response, 500)
    assert b"secret" not in response.content
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize("error", [RuntimeError("secret"), OperationalError("gone")])
def test_what_was_committed_before_an_error_is_what_the_same_request_gets(
    api: Any, body: dict[str, Any], error: Exception
) -> None:
    """The error is not what is remembered; and it used the key up, as its booking is there."""
    with crashpoints.armed("booking.before_response", raising(error)):
        assert_problem(api.post(body), 500 if isinstance(error, RuntimeError) else 503)
    assert hotels.accepted_rows() == (1, 1, 1)
    again = api.post(body)
    assert (again.status_code, again["Idempotent-Replayed"]) == (202, "true")
    assert api.get(again["Location"]).json() == again.json()
    assert_problem(api.post({**body, "nights": 1}), 422, "/nights")
    assert hotels.accepted_rows() == (1, 1, 1)


@pytest.mark.parametrize("error", [RuntimeError("secret"), OperationalError("gone")])
def test_what_was_not_committed_used_no_key_up_for_a_corrected_request_either(
    api: Any, body: dict[str, Any], error: Exception
) -> None:
    with crashpoints.armed("booking.before_insert", raising(error)):
        api.post(body)
    accepted = api.post({**body, "nights": 1})
    assert (accepted.status_code, accepted.json()["nights"]) == (202, 1)
    assert "Idempotent-Replayed" not in accepted
    assert hotels.accepted_rows() == (1, 1, 1)


def test_a_booking_past_its_retention_is_410(api: Any, body: dict[str, Any]) -> None:
    with crashpoints.armed("booking.before_insert", raising(outcomes.SubmissionGone("key"))):
        assert_problem(api.post(body), 410)


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/bookings/", "/v1/bookings/a/b", "/nothing%00", "/v0/bookings"]
)
def test_a_path_that_is_not_there_is_404(api: Any, path: str) -> None:
    assert_problem(api.get(path), 404)


def test_django_has_the_same_words_outside_of_the_api() -> None:
    request = RequestFactory().get("/")
    for status, answer in (
        (400, problems.handler400(request, Exception())),
        (403, problems.handler403(request, Exception())),
        (404, problems.handler404(request, Exception())),
        (500, problems.handler500(request)),
    ):
        assert isinstance(answer, JsonResponse)
        assert answer.status_code == json.loads(answer.content)["status"] == status
        assert answer["Content-Type"] == problems.CONTENT_TYPE


def test_an_unknown_host_is_400(api: Any) -> None:
    response = api.client.get("/v1/bookings/x", headers={"Host": "evil.example"})
    assert_problem(response, 400)

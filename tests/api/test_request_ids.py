"""Every answer carries the request's id, which the logs carry too; a database that is away is seen by readiness alone."""

import json
import logging
import re
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import RequestDataTooBig
from django.db import OperationalError, connection
from django.test import Client, RequestFactory

from bookings.api import problems
from config import logs
from ledger import crashpoints, telemetry
from tests.api.problems import assert_problem

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def client(database: None) -> Client:
    return Client(raise_request_exception=False)


@pytest.mark.parametrize("given", ["a", "req-1;x=y", "x" * 128])
def test_a_clients_own_id_comes_back(client: Client, given: str) -> None:
    response = client.get("/livez", headers={"X-Request-ID": given})
    assert response["X-Request-ID"] == given


@pytest.mark.parametrize("given", ["", " ", "a b", "x" * 129, "\u00e9", "a\tb", "\x01"])
def test_another_is_made_in_the_place_of_a_bad_one(client: Client, given: str) -> None:
    response = client.get("/livez", headers={"X-Request-ID": given})
    assert re.fullmatch(UUID, response["X-Request-ID"])


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/v1/bookings", "localhost", 401),
        ("/nothing", "localhost", 404),
        ("/livez", "evil.example", 400),
    ],
)
def test_an_error_names_its_request(client: Client, path: str, host: str, status: int) -> None:
    response = client.get(path, headers={"X-Request-ID": "a/b", "Host": host})
    assert assert_problem(response, status)["instance"] == "urn:amends:request:a%2Fb"
    assert response["X-Request-ID"] == "a/b"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE), (f"cc-{TRACE}-00f067aa0ba902b7-01-more", TRACE),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", None), (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None), (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", None), ("x", None),
    ],
)  # fmt: skip
def test_the_lines_of_a_request_carry_its_ids(
    api: Any, body: dict[str, Any], given: str, kept: str | None
) -> None:
    seen: list[dict[str, Any]] = []
    with crashpoints.armed("booking.before_insert", lambda _: seen.append(telemetry.context())):
        api.post(body, headers={"X-Request-ID": "mine", "traceparent": given})
    assert seen == [{"request_id": "mine"} | ({"trace_id": kept} if kept else {})]
    assert telemetry.context() == {}


def test_a_line_of_any_logger_shows_them() -> None:
    record = logging.LogRecord("django", logging.WARNING, "", 0, "said", None, None)
    with telemetry.bound(request_id="mine", trace_id=TRACE):
        line = json.loads(logs.formatter().format(record))
    assert (line["request_id"], line["trace_id"], line["event"]) == ("mine", TRACE, "said")


def test_a_bug_is_logged_under_the_id_that_its_answer_names(
    api: Any, body: dict[str, Any], capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    def crash(_point: str) -> None:
        raise RuntimeError("secret")

    caplog.set_level("INFO")  # whatever a command in this process has made of it
    with crashpoints.armed("booking.before_insert", crash):
        response = api.post(body, headers={"X-Request-ID": "mine"})
    found = assert_problem(response, 500)
    assert found["instance"].endswith(":mine")
    (line,) = [
        r.msg
        for r in caplog.records
        if isinstance(r.msg, dict) and r.msg["event"] == "request.failed"
    ]
    assert line["request_id"] == "mine"


def test_readiness_asks_the_database(client: Client) -> None:
    assert client.get("/readyz").json() == {"ready": True}

    def refuse(*_args: Any) -> Any:
        raise OperationalError("secret")

    with connection.execute_wrapper(refuse):
        response = client.get("/readyz")
        live = client.get("/livez")
    found = assert_problem(response, 503)
    assert "secret" not in found["detail"]
    assert response["Retry-After"] == str(problems.RETRY_AFTER_SECONDS)
    assert live.json() == {"live": True}


def test_readiness_needs_no_broker(client: Client, settings: Any) -> None:
    settings.BROKER_URL = "redis://127.0.0.1:1/0"
    assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
def test_what_watches_is_read_only(client: Client, path: str) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        response = client.generic(method, path)
        assert_problem(response, 405)
        assert response["Allow"] == "GET, HEAD"
    assert client.head(path).status_code == 200


def test_a_body_too_large_for_django_is_413() -> None:
    answer = problems.handler400(RequestFactory().get("/"), RequestDataTooBig())
    assert answer.status_code == 413


def test_the_middleware_is_the_outermost() -> None:
    assert django_settings.MIDDLEWARE[0] == "config.middleware.request_ids"

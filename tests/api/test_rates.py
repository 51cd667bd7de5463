"""A key is never let in more often than its rate says, whoever counts; who is refused has changed nothing."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import http_sf
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from bookings.api import rates
from config import checks
from tests import hotels

TAKER = """
from django.conf import settings
from bookings.api import rates
rates.TIMEOUT_SECONDS = 10.0
limit = rates.Limit("test")
print(sum(limit.take({name!r}, 50).is_taken for _ in range(40)))
"""
TIMEOUT_SECONDS = rates.TIMEOUT_SECONDS
PATIENCE_SECONDS = 10.0  # where many processes share few cores, and what is counted is to be exact
UNKNOWN = "/v1/bookings/019a0000-0000-7000-8000-000000000000"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_shared", rates._Shared())
    monkeypatch.setattr(rates, "TIMEOUT_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def limit() -> rates.Limit:
    return rates.Limit("test")


@pytest.fixture
def name() -> str:
    return uuid4().hex


def lost(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, this process finds that server where Valkey was."""
    monkeypatch.setattr(rates, "_shared", rates._Shared())
    monkeypatch.setattr(settings, "RATE_URL", url)


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost(f"unix://{tmp_path}/nobody", monkeypatch)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server that takes connections and says nothing."""
    monkeypatch.setattr(rates, "TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as server:
        lost(f"redis://127.0.0.1:{server.getsockname()[1]}/0", monkeypatch)
        yield


def assert_exceeded(response: Any, policy: str) -> None:
    assert response.status_code == 429, response.content
    assert response["Content-Type"] == "application/problem+json"
    found = response.json()
    assert found["type"] == "https://iana.org/assignments/http-problem-types#quota-exceeded"
    assert found["violated-policies"] == [policy]
    assert 1 <= int(response["Retry-After"]) <= rates.WINDOW_SECONDS


def field(response: Any, header: str) -> dict[str, int]:
    """The parameters of a field that holds one string, which names our policy."""
    found: Any = http_sf.parse(response[header].encode(), tltype="list")
    ((value, parameters),) = found
    assert value == "key"
    return dict(parameters)


def posts(api: Any, body: dict[str, Any], count: int) -> list[int]:
    """The statuses of so many different bookings, sixteen at a time."""

    def post(n: int) -> int:
        headers = {"Authorization": f"Bearer {api.key}", "Idempotency-Key": f"key-{n}"}
        try:
            response = Client(raise_request_exception=False).post(
                "/v1/bookings", body, content_type="application/json", headers=headers
            )
            return int(response.status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(post, range(count)))


def test_four_processes_at_once_take_what_there_is_and_no_more(name: str) -> None:
    command = [sys.executable, "-c", TAKER.format(name=name)]
    takers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    taken = [int(taker.communicate(timeout=25)[0]) for taker in takers]
    assert sum(taken) == 50, taken


def test_of_many_bookings_at_once_as_many_come_in_as_the_rate_says(
    client_of: Callable[..., Any], body: dict[str, Any]
) -> None:
    api = client_of(rate_per_minute=10)
    statuses = posts(api, body, 48)
    assert sorted(set(statuses)) == [202, 429]
    assert statuses.count(202) == 10
    assert hotels.accepted_rows() == (10, 10, 10)


@pytest.mark.usefixtures("nobody")
def test_with_valkey_away_each_process_keeps_to_the_rate(
    client_of: Callable[..., Any], body: dict[str, Any]
) -> None:
    statuses = posts(client_of(rate_per_minute=10), body, 30)
    assert sorted(set(statuses)) == [202, 429]
    assert statuses.count(202) == 10


@pytest.mark.usefixtures("silent")
def test_a_valkey_that_says_nothing_is_waited_for_once(limit: rates.Limit, name: str) -> None:
    begun = time.monotonic()
    taken = [limit.take(name, 50).is_taken for _ in range(100)]
    assert time.monotonic() - begun < TIMEOUT_SECONDS * 5
    assert TIMEOUT_SECONDS <= 0.2
    assert taken == [True] * 50 + [False] * 50


def test_it_comes_back_after_some_seconds_of_silence(
    limit: rates.Limit, name: str, nobody: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit.take(name, 5)
    monkeypatch.setattr(settings, "RATE_URL", settings.BROKER_URL)
    rates._shared._client = None
    assert limit.take(name, 5).left == 3, "still counted here"
    rates._shared._silent_until = 0.0
    assert limit.take(name, 5).left == 4, "counted there"


def test_a_server_that_has_forgotten_the_script_is_told_again(
    limit: rates.Limit, name: str
) -> None:
    limit.take(name, 2)
    client = rates._shared._client
    client.script_flush()
    assert [limit.take(name, 2).is_taken for _ in range(2)] == [True, False]
    assert client.zcard(limit._key(name)) == 2, "all of them counted there"


def test_what_is_older_than_the_window_counts_no_more(limit: rates.Limit, name: str) -> None:
    limit.take(name, 3)
    key, client = limit._key(name), rates._shared._client
    seconds, _ = client.time()
    ages = {"old": 61, "leaving": 57, "young": 10}
    client.delete(key)
    client.zadd(key, {member: (seconds - age) * 1000 for member, age in ages.items()})
    standing = limit.take(name, 3)
    assert (standing.is_taken, standing.left) == (True, 0)
    refused = limit.take(name, 3)
    assert not refused.is_taken
    assert refused.retry_seconds in (2, 3, 4), refused
    assert refused.reset_seconds in (2, 3, 4), refused
    assert client.zscore(key, "old") is None
    assert 0 < client.pttl(key) <= rates.WINDOW_MS + 1000


def test_what_else_was_left_under_its_name_blocks_nobody_and_goes(
    limit: rates.Limit, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither text, nor a count that never ends, nor one of a clock that was an hour fast."""
    limit.take(uuid4().hex, 1)
    key, client = limit._key(name), rates._shared._client
    ahead = (client.time()[0] + 3_600) * 1000
    for leave in (
        lambda: client.set(key, "text"),
        lambda: client.zadd(key, {"never ends": 1}),
        lambda: client.zadd(key, {f"ahead-{n}": ahead for n in range(5)}),
    ):
        client.delete(key)
        leave()
        assert client.ttl(key) == -1
        assert [limit.take(name, 2).is_taken for _ in range(3)] == [True, True, False]
        assert client.zcard(key) == 2, "counted there, and nothing else"
        assert 0 < client.pttl(key) <= rates.WINDOW_MS + 1000
    assert "rates.parted" not in caplog.text


@pytest.mark.parametrize("is_away", [False, True])
def test_many_at_once_are_all_or_none(
    limit: rates.Limit, name: str, is_away: bool, request: pytest.FixtureRequest
) -> None:
    if is_away:
        request.getfixturevalue("nobody")
    assert limit.take(name, 10, 8).left == 2
    assert not limit.take(name, 10, 3).is_taken
    assert limit.take(name, 10, 2).left == 0
    assert limit.take(name, 10, 11).retry_seconds is None
    limit.give_back(name)
    assert [limit.take(name, 10).is_taken for _ in range(2)] == [True, False]


def test_every_answer_to_a_key_says_where_it_stands(
    client_of: Callable[..., Any], body: dict[str, Any]
) -> None:
    api = client_of(rate_per_minute=6, scopes=["bookings:write", "bookings:read"])
    answers = [
        api.post(body), api.post(body), api.get(UNKNOWN), api.send("PUT", "/v1/bookings"), api.get("/v1/webhooks"),
        api.get("/v1/bookings?x=1"), api.get("/v1/bookings"),
    ]  # fmt: skip
    assert [a.status_code for a in answers] == [202, 202, 404, 405, 403, 400, 429]
    assert answers[1]["Idempotent-Replayed"] == "true"
    for left, answer in zip((5, 4, 3, 2, 1, 0, 0), answers, strict=True):
        assert field(answer, "RateLimit-Policy") == {"q": 6, "w": 60}
        stands = field(answer, "RateLimit")
        assert stands["r"] == left
        assert 0 < stands["t"] <= 60
    assert_exceeded(answers[-1], "key")


def test_a_refused_booking_leaves_no_row_and_its_key_usable(
    client_of: Callable[..., Any], body: dict[str, Any]
) -> None:
    api = client_of(rate_per_minute=1)
    api.get(UNKNOWN)
    assert_exceeded(api.post(body), "key")
    assert hotels.accepted_rows() == (0, 0, 0)
    rates._shared._client.delete(f"amends:rate:key:{api.row.prefix}")
    answer = api.post(body)
    assert answer.status_code == 202
    assert "Idempotent-Replayed" not in answer


def test_of_many_in_one_request_each_counts(
    client_of: Callable[..., Any], body: dict[str, Any]
) -> None:
    api = client_of(rate_per_minute=10)

    def send(count: int) -> Any:
        items = [{**body, "idempotency_key": f"{count}-{n}"} for n in range(count)]
        return api.send("POST", "/v1/bookings/bulk", {"bookings": items})

    assert field(send(5), "RateLimit")["r"] == 5
    made = hotels.accepted_rows()
    assert made == (5, 5, 5)
    assert_exceeded(send(6), "key")
    never = send(12)
    assert never.status_code == 400
    assert never.json()["errors"][0]["code"] == "over_rate"
    assert hotels.accepted_rows() == made


def test_keys_do_not_count_for_each_other(
    client_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "RATE_PER_MINUTE", 3)
    one, other = client_of("one"), client_of("other", rate_per_minute=1)
    assert field(one.get(UNKNOWN), "RateLimit") | {"t": 0} == {"r": 2, "t": 0}
    assert field(other.get(UNKNOWN), "RateLimit-Policy")["q"] == 1
    assert other.get(UNKNOWN).status_code == 429
    assert one.get(UNKNOWN).status_code == 404


def test_an_address_that_is_none_is_refused_and_costs_no_request(
    limit: rates.Limit, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checks.limits() == []
    lost("sentinel://one:26379;sentinel://two:26379", monkeypatch)
    assert [limit.take(name, 1).is_taken for _ in range(2)] == [True, False]
    assert ["one server" in message.msg for message in checks.limits()] == [True]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("RATE_PER_MINUTE", 0), ("WRONG_KEYS_PER_MINUTE", 0), ("OPEN_JOBS_MAX", -1), ("BACKLOG_SECONDS_MAX", -1.0),
        ("TRUSTED_PROXIES", -1), ("KEY_ENVIRONMENT", "Live"), ("KEY_ENVIRONMENT", "li_ve"),
    ],
)  # fmt: skip
def test_limits_that_make_no_sense_are_refused(
    setting: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, setting, value)
    assert [message.id for message in checks.limits()] == ["config.E006"]


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("redis+socket://%2Ftmp%2Fa%20b/v.sock?virtual_host=2", "unix:///tmp/a b/v.sock?db=2"),
        ("redis+socket:///run/v.sock", "unix:///run/v.sock?db=0"),
        ("rediss://user:word@host:6380/1", "rediss://user:word@host:6380/1"),
    ],
)
def test_addresses_are_understood_as_the_broker_spells_them(given: str, plain: str) -> None:
    assert rates.plain_url(given) == plain

"""Guessing keys is limited by address and by prefix before anything is looked at, and not at the cost of who has the key."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, RequestFactory
from rest_framework.request import Request

from bookings.api import auth, limits, rates
from bookings.models import ApiKey
from tests import hotels
from tests.api.problems import assert_problem, without_instance
from tests.api.test_rates import PATIENCE_SECONDS, assert_exceeded

MOST = 3


@pytest.fixture(autouse=True)
def fresh_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_shared", rates._Shared())
    monkeypatch.setattr(rates, "TIMEOUT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(auth, "lookups", auth.Lookups(0.0, 100))  # each request is looked up
    monkeypatch.setattr(settings, "WRONG_KEYS_PER_MINUTE", MOST)


def somewhere() -> str:
    """An address that no other test has used in this minute."""
    return f"10.{secrets.randbelow(256)}.{secrets.randbelow(256)}.{secrets.randbelow(256)}"


def ask(key: str, address: str) -> Any:
    client = Client(raise_request_exception=False, REMOTE_ADDR=address)
    return client.get("/v1/hotels", headers={"Authorization": f"Bearer {key}"})


def guess(prefix: str = "") -> str:
    return f"{prefix or secrets.token_hex(4)}.{secrets.token_hex(16)}"


def test_of_an_address_only_so_many_are_looked_at(api: Any) -> None:
    address = somewhere()
    assert [ask(guess(), address).status_code for _ in range(MOST)] == [401] * MOST
    assert_exceeded(ask(guess(), address), "wrong-keys")
    refused = ask(api.key, address)
    assert_exceeded(
        refused, "wrong-keys"
    )  # whether a key is right cannot be found out here any more
    assert "RateLimit" not in refused
    assert ask(api.key, somewhere()).status_code == 200


def test_of_a_prefix_only_so_many_are_looked_at_from_wherever(api: Any) -> None:
    prefix = api.row.prefix
    assert [ask(guess(prefix), somewhere()).status_code for _ in range(MOST)] == [401] * MOST
    assert_exceeded(ask(guess(prefix), somewhere()), "wrong-keys")
    assert ApiKey.objects.get().last_used_at is None


def test_a_prefix_that_is_guessed_at_is_not_held_against_an_address(api: Any) -> None:
    while ask(guess(api.row.prefix), somewhere()).status_code == 401:
        pass
    address = somewhere()
    assert [ask(api.key, address).status_code for _ in range(MOST + 1)] == [429] * (MOST + 1)
    _, other = ApiKey.objects.create_key(tenant=api.row.tenant, name="other")
    assert ask(other, address).status_code == 200


def test_many_at_once_are_not_more(database: None) -> None:
    address = somewhere()

    def one(_n: int) -> int:
        try:
            return int(ask(guess(), address).status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(one, range(32)))
    assert sorted(set(statuses)) == [401, 429]
    assert statuses.count(401) == MOST


def test_who_has_the_key_is_not_held_up_by_those_who_guess(api: Any) -> None:
    address = somewhere()
    assert ask(api.key, address).status_code == 200
    for _ in range(MOST + 1):
        ask(guess(api.row.prefix), address)
    assert_exceeded(ask(guess(api.row.prefix), address), "wrong-keys")
    assert ask(api.key, address).status_code == 200


def test_a_key_that_has_ended_is_a_guess_like_any_other(api: Any) -> None:
    address = somewhere()
    assert ask(api.key, address).status_code == 200
    ApiKey.objects.update(revoked=True)
    statuses = [ask(api.key, address).status_code for _ in range(MOST + 2)]
    assert statuses == [401] * (MOST + 1) + [429]


def test_right_keys_count_for_nothing_and_nor_does_what_is_no_key(
    client_of: Callable[..., Any],
) -> None:
    address = somewhere()
    keys = [client_of(f"tenant-{n}").key for n in range(MOST * 2)]
    assert {ask(key, address).status_code for key in keys} == {200}
    assert {ask("nonsense", address).status_code for _ in range(MOST * 2)} == {401}
    assert ask(guess(), address).status_code == 401


@pytest.mark.parametrize(
    ("proxies", "told", "peer", "found"),
    [
        (0, "1.2.3.4", "9.9.9.9", "9.9.9.9"),
        (1, "6.6.6.6, 1.2.3.4", "9.9.9.9", "1.2.3.4"),
        (2, "6.6.6.6, 1.2.3.4, 8.8.8.8", "9.9.9.9", "1.2.3.4"),
        (1, "", "9.9.9.9", "9.9.9.9"),
        (1, "nonsense", "9.9.9.9", "9.9.9.9"),
        (0, "", "", "unknown"),
        (0, "", "::1", "::/64"),
        (0, "", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        (0, "", "::ffff:9.9.9.9", "9.9.9.9"),
    ],
)
def test_an_address_is_what_our_own_proxies_saw(
    proxies: int, told: str, peer: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TRUSTED_PROXIES", proxies)
    request = RequestFactory().get("/", headers={"X-Forwarded-For": told}, REMOTE_ADDR=peer)
    assert limits.address_of(Request(request)) == found


def test_a_key_is_good_in_its_environment_only(
    client_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    unnamed = client_of().key
    monkeypatch.setattr(settings, "KEY_ENVIRONMENT", "live")
    live = client_of().key
    bare = live.removeprefix("live_")
    assert len(live) == len(bare) + 5
    assert ask(live, somewhere()).status_code == 200
    unknown = ask(guess(), somewhere())
    for key in (bare, f"test_{bare}", f"live_live_{bare}", f"LIVE_{bare}", unnamed):
        refused = ask(key, somewhere())
        assert without_instance(assert_problem(refused, 401)) == without_instance(unknown.json())
    monkeypatch.setattr(settings, "KEY_ENVIRONMENT", "staging")
    assert ask(live, somewhere()).status_code == 401


def test_a_key_in_the_url_is_refused_and_in_no_log(
    api: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("INFO")
    caplog.set_level("INFO", logger="django.request")
    query = f"?api_key={api.key}"
    api.client.defaults["REMOTE_ADDR"] = somewhere()
    assert api.client.get(f"/v1/hotels{query}").status_code == 401
    refused = api.get(f"/v1/hotels{query}")
    assert_problem(refused, 400, "?api_key")
    secret = api.key.partition(".")[2]
    assert secret not in refused.content.decode()
    captured = capfd.readouterr()
    assert secret not in caplog.text + captured.out + captured.err
    assert caplog.text, "refusals are logged"


def test_a_session_of_staff_is_no_key(body: dict[str, Any], database: None) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("boss"))
    headers = {"Idempotency-Key": "key"}
    for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
        assert_problem(client.post("/v1/bookings", b"{}", content_type=kind, headers=headers), 401)
    assert hotels.accepted_rows() == (0, 0, 0)

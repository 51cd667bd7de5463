"""Who may ask: every wrong key gets the same 401, every missing scope a 403, and a revoked key ends soon."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from bookings.api import auth
from bookings.models import ApiKey
from tests import hotels
from tests.api.problems import assert_problem, without_instance

PAST = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def fresh_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "lookups", auth.Lookups(15.0, 100))


def wrong_headers(key: str) -> list[str | None]:
    prefix, secret = key.split(".")
    return [
        None, "", "Bearer", "Bearer ", f"Bearer  {key}", f"Bearer {key} ", f"Bearer {key},Bearer {key}", key,
        f"Api-Key {key}", f"Basic {key}", f"Bearer {prefix}", f"Bearer .{secret}",
        f"Bearer {prefix}.{secret[::-1]}",
        f"Bearer {prefix}.{secret}x",
        f"Bearer {prefix[::-1]}.{secret}", f"Bearer {key.upper()}", "Bearer " + "x" * 10_000, "Bearer cl\u00e9.\u00e9",
        f"Bearer {prefix}.{secret}\x00",
    ]  # fmt: skip


def test_every_wrong_key_is_the_same_401(api: Any, body: dict[str, Any]) -> None:
    answers = []
    for header in wrong_headers(api.key):
        sent = {"Idempotency-Key": "key"} | ({} if header is None else {"Authorization": header})
        response = api.client.post(
            "/v1/bookings", body, content_type="application/json", headers=sent
        )
        answers.append(without_instance(assert_problem(response, 401)))
        assert response["WWW-Authenticate"] == 'Bearer realm="amends"'
    assert all(answer == answers[0] for answer in answers)
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize("change", [{"revoked": True}, {"expiry_date": PAST}])
def test_a_revoked_or_expired_key_is_the_same_401(
    api: Any, body: dict[str, Any], change: dict[str, Any]
) -> None:
    unknown = api.client.post("/v1/bookings", headers={"Authorization": "Bearer none"})
    ApiKey.objects.update(**change)
    response = api.post(body)
    assert without_instance(assert_problem(response, 401)) == without_instance(unknown.json())
    assert hotels.accepted_rows() == (0, 0, 0)


def test_a_key_in_the_url_or_a_session_is_no_key(api: Any, body: dict[str, Any]) -> None:
    response = api.client.post(
        f"/v1/bookings?api_key={api.key}",
        body,
        content_type="application/json",
        headers={"Idempotency-Key": "k"},
    )
    assert_problem(response, 401)


@pytest.mark.parametrize(
    ("scope", "may_post", "may_get"), [("bookings:read", 403, 404), ("bookings:write", 202, 403)]
)
def test_a_key_does_only_what_its_scopes_say(
    client_of: Callable[..., Any], body: dict[str, Any], scope: str, may_post: int, may_get: int
) -> None:
    api = client_of(scopes=[scope])
    assert api.post(body).status_code == may_post
    assert api.get("/v1/bookings/019a0000-0000-7000-8000-000000000000").status_code == may_get
    assert hotels.accepted_rows()[0] == (may_post == 202)


def test_last_use_is_noted(api: Any, body: dict[str, Any]) -> None:
    assert ApiKey.objects.get().last_used_at is None
    api.post(body)
    assert ApiKey.objects.get().last_used_at is not None


def test_a_known_key_costs_no_query(
    api: Any, body: dict[str, Any], django_assert_max_num_queries: Any
) -> None:
    api.post(body)
    with django_assert_max_num_queries(0):
        assert_problem(api.post(b"{"), 400)


def test_a_revoked_key_works_no_longer_than_a_lookup_is_kept(
    api: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(auth, "lookups", auth.Lookups(auth.CACHE_SECONDS, 100, lambda: now[0]))
    assert api.post(body).status_code == 202
    ApiKey.objects.update(revoked=True)
    now[0] = auth.CACHE_SECONDS
    assert_problem(api.post(body), 401)
    assert auth.CACHE_SECONDS <= 30


def test_lookups_are_bounded_and_keep_no_key() -> None:
    lookups = auth.Lookups(10.0, 2, lambda: 0.0)
    identity: Any = ("user", "key")
    for header in ("one", "two", "three"):
        lookups.put(header, identity)
    assert [lookups.get(header) for header in ("one", "two", "three")] == [None, identity, identity]
    assert "three" not in repr(vars(lookups))

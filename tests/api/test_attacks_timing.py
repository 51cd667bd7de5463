"""How long an answer takes tells nothing that its words keep to themselves: who exists, and which key is nearly right.

Medians over many tries, one of each in turn, so that what else the machine does meets both.
"""

import secrets
import statistics
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings

from tests.api.problems import assert_problem
from tests.api.test_wrong_keys import somewhere

pytestmark = pytest.mark.timeout(120)
TRIES = 200
NOISE = 1.25  # both at once under load differ by less than 1.1; a query more in one of them is 1.5


def medians(*asks: Callable[[], Any]) -> list[float]:
    taken: list[list[float]] = [[] for _ in asks]
    for _ in range(TRIES):
        for ask, seconds in zip(asks, taken, strict=True):
            begun = time.perf_counter()
            ask()
            seconds.append(time.perf_counter() - begun)
    return [statistics.median(seconds) for seconds in taken]


def assert_alike(*asks: Callable[[], Any]) -> None:
    found = medians(*asks)
    assert max(found) < min(found) * NOISE, found


def test_anothers_booking_takes_as_long_as_none(
    api: Any, client_of: Callable[..., Any], body: dict[str, Any]
) -> None:
    theirs = client_of("other").book(body)
    paths = [f"/v1/bookings/{id_}" for id_ in (theirs, uuid4())]
    for path in paths:
        assert_problem(api.get(path), 404)
    assert_alike(*[lambda path=path: api.get(path) for path in paths])


def test_a_key_of_another_tenants_takes_as_long_as_a_new_one(
    api: Any, client_of: Callable[..., Any], body: dict[str, Any]
) -> None:
    keys = [f"key-{n}" for n in range(TRIES)]
    for key in keys:
        client_of("other").book(body, key)
    used = iter(keys)
    refused = {**body, "hotel": "OTHER"}  # so that each is as new as the one before
    assert_alike(lambda: api.post(refused, next(used)), lambda: api.post(refused, uuid4().hex))


def test_a_wrong_secret_takes_as_long_as_a_wrong_prefix(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "WRONG_KEYS_PER_MINUTE", 100 * TRIES)

    address = somewhere()  # these count, and are held against nobody else

    def ask(prefix: str) -> Any:
        header = {"Authorization": f"Bearer {prefix}.{secrets.token_hex(16)}"}
        return api.client.get("/v1/bookings", headers=header, REMOTE_ADDR=address)

    assert_problem(ask(api.row.prefix), 401)
    assert_alike(lambda: ask(api.row.prefix), lambda: ask(secrets.token_hex(4)))

"""What `manage.py check` says of servers that would make trouble."""

from collections.abc import Iterator

import pytest
from django.conf import settings

from config import checks
from config.celery import app
from tests.trouble import servers


@pytest.fixture(scope="module")
def broker() -> Iterator[servers.Valkey]:
    with servers.Valkey() as server:
        yield server


@pytest.mark.parametrize(
    ("policy", "found"), [("noeviction", []), ("allkeys-lru", ["config.W001"])]
)
def test_a_broker_that_throws_tickets_away_is_warned_of(
    broker: servers.Valkey, monkeypatch: pytest.MonkeyPatch, policy: str, found: list[str]
) -> None:
    broker.say("CONFIG", "SET", "maxmemory-policy", policy)
    monkeypatch.setattr(app.conf, "broker_read_url", broker.url)
    assert [message.id for message in checks.evictions(databases=["default"])] == found


def test_a_broker_that_is_away_is_no_mistake_and_nobody_is_asked_without_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app.conf, "broker_read_url", "redis://127.0.0.1:1/0")
    assert checks.evictions(databases=["default"]) == []
    assert checks.evictions() == []


@pytest.mark.parametrize(("pool", "found"), [(None, []), (True, ["config.E003"])])
def test_a_pool_of_connections_is_refused(
    monkeypatch: pytest.MonkeyPatch, pool: bool | None, found: list[str]
) -> None:
    monkeypatch.setitem(settings.DATABASES["default"]["OPTIONS"], "pool", pool)
    assert [message.id for message in checks.shared_connections()] == found

"""What a tenant may ask of the routes of webhooks: few look-ups at once, and so many endpoints in a day."""

import socket
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from bookings.models import Scope, WebhookEndpoint
from bookings.webhooks import egress, endpoints
from ledger import sql
from tests import hotels, psql
from tests.acceptance.live import until
from tests.api.problems import assert_problem, without_instance
from tests.api.test_webhooks_api import Manager, manager
from tests.webhooks.conftest import receiver
from tests.webhooks.receivers import Receiver

__all__ = ["manager", "receiver"]
PUBLIC = "9.9.9.9"
HOST = "hooks.example.com"


@dataclass
class NameServer:
    """Answers for names under example.com, once it is released; other look-ups are none of its business."""

    real: Any
    answers: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def look_up(self, host: Any, *args: Any, **kwargs: Any) -> Any:
        if not str(host).endswith("example.com"):
            return self.real(host, *args, **kwargs)
        self.asked.append(host)
        assert self.released.wait(20)
        if host not in self.answers:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return self.real(self.answers[host], *args, **kwargs)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> NameServer:
    server = NameServer(socket.getaddrinfo)
    monkeypatch.setattr(socket, "getaddrinfo", server.look_up)
    return server


def code_of(answer: Any) -> str:
    return str(assert_problem(answer, 400)["errors"][0]["code"])


def test_so_many_requests_wait_for_names_at_once(
    manager: Manager, receiver: Receiver, names: NameServer
) -> None:
    url = f"http://{HOST}:{receiver.port}/hook"
    names.answers[HOST] = "127.0.0.1"
    others = [
        Manager(f"other-{n}", scopes=[Scope.WEBHOOKS.value]) for n in range(endpoints.LOOK_UPS_MAX)
    ]
    making = [psql.Thread(partial(other.make, url)) for other in others]
    until(lambda: len(names.asked) == endpoints.LOOK_UPS_MAX, 20)
    assert_problem(manager.make(url), 503)
    names.released.set()
    assert [one.result(20).status_code for one in making] == [201] * endpoints.LOOK_UPS_MAX
    assert manager.make(url).status_code == 201


def test_names_that_hang_take_no_other_tenants_place_until_resolvers_are_too_many(
    manager: Manager, receiver: Receiver, names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "LOOK_UP_SECONDS", 0.2)
    monkeypatch.setattr(endpoints, "LOOK_UPS_MAX", 1)
    monkeypatch.setattr(endpoints, "RESOLVERS_MAX", 2)
    names.answers[HOST] = "127.0.0.1"
    url = f"http://{HOST}:{receiver.port}/hook"
    second, third = (Manager(name, scopes=[Scope.WEBHOOKS.value]) for name in ("second", "third"))
    assert code_of(manager.make(url)) == "name_timeout"
    again = manager.make(url)  # nobody waits for the first, but its resolver is still at work
    assert_problem(again, 503)
    assert again["Retry-After"] == "1"
    assert code_of(second.make(url)) == "name_timeout"
    assert_problem(third.make(url), 503)
    assert names.asked == [HOST] * endpoints.RESOLVERS_MAX
    assert third.make(receiver.url()).status_code == 201  # an address needs no look-up
    names.released.set()
    for thread in threading.enumerate():
        if thread.name == "webhook-look-up":
            thread.join(20)
    assert third.make(url).status_code == 201
    assert WebhookEndpoint.objects.count() == 2


def test_a_name_of_ours_looks_like_one_that_nobody_knows(
    manager: Manager, receiver: Receiver, names: NameServer
) -> None:
    names.released.set()
    names.answers["inside.example.com"] = "10.0.0.1"
    answers = [
        without_instance(assert_problem(manager.make(f"http://{name}.example.com:{receiver.port}/"), 400))
        for name in ("inside", "unknown")
    ]  # fmt: skip
    assert answers[0] == answers[1]
    assert len(names.asked) == 2


@pytest.mark.parametrize("limit", ["the same", "enabled", "made"])
def test_who_may_make_no_more_has_no_name_looked_up(
    manager: Manager, receiver: Receiver, names: NameServer, limit: str
) -> None:
    url = f"http://{HOST}:{receiver.port}/hook"
    tenant = hotels.tenant()
    made = {"the same": 1, "enabled": endpoints.ENDPOINTS_MAX, "made": endpoints.MADE_MAX}[limit]
    for n in range(made):
        one = endpoints.create(tenant.id, receiver.url(f"/{n}"))
        if limit == "made":
            endpoints.disable(one.endpoint, "by its tenant")
    if limit == "the same":
        sql.fetch("UPDATE bookings_webhookendpoint SET url = %s", [url])
    answer = manager.make(url)
    assert answer.status_code == (429 if limit == "made" else 409)
    assert names.asked == []
    assert WebhookEndpoint.objects.count() == made


def test_so_many_are_made_in_a_day_with_those_that_ended(
    manager: Manager, receiver: Receiver
) -> None:
    tenant = hotels.tenant()
    for n in range(endpoints.MADE_MAX):
        endpoints.disable(
            endpoints.create(tenant.id, receiver.url(f"/{n}")).endpoint, "by its tenant"
        )
    answer = manager.make(receiver.url())
    assert answer.status_code == 429
    assert answer.json()["violated-policies"] == ["webhooks-made"]
    assert 86_000 < int(answer["Retry-After"]) <= 86_400
    assert WebhookEndpoint.objects.count() == endpoints.MADE_MAX
    assert Manager("other", scopes=[Scope.WEBHOOKS.value]).make(receiver.url()).status_code == 201
    sql.fetch(
        "UPDATE bookings_webhookendpoint SET created_at = created_at - interval '1 day' WHERE url = %s",
        [receiver.url("/0")],
    )
    assert manager.make(receiver.url()).status_code == 201
    assert manager.make(receiver.url("/more")).status_code == 429

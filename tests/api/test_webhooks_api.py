"""The routes of webhooks: a secret is shown once, a URL is judged, and nobody sees another tenant's."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction

from bookings.models import Scope, WebhookEndpoint, WebhookSecret
from bookings.webhooks import endpoints
from tests import hotels, psql
from tests.api.conftest import ApiClient
from tests.api.problems import assert_problem, without_instance
from tests.conftest import Roles
from tests.webhooks import receivers, tenants
from tests.webhooks.conftest import receiver, told
from tests.webhooks.receivers import Receiver
from tests.webhooks.tenants import Told

__all__ = ["receiver", "told"]
ROUTES = ("", "/secret", "/deliveries")


class Manager(ApiClient):
    """A client whose key may manage webhooks."""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return self.send(method.upper(), f"/v1/webhooks{path}", body)

    def make(self, url: str) -> Any:
        return self.ask("post", "", {"url": url})


@pytest.fixture
def manager(database: None) -> Manager:
    return Manager(scopes=[Scope.WEBHOOKS.value])


def test_made_seen_given_a_new_secret_and_ended_as_the_role_of_the_api(
    manager: Manager, receiver: Receiver, as_role: Roles
) -> None:
    with as_role("api"):
        made = manager.make(receiver.url("/a?b=1"))
        assert made.status_code == 201, made.content
        body = made.json()
        secret = body.pop("secret")
        own = f"/{body['id']}"
        assert made["Location"] == f"/v1/webhooks{own}"
        assert manager.ask("get", own).json() == body
        assert manager.ask("get", "").json() == {"items": [body]}
        rotated = manager.ask("post", f"{own}/secret")
        assert rotated.status_code == 200
        second = rotated.json()["secret"]
        assert manager.ask("get", f"{own}/deliveries").json() == {"items": [], "next": None}
        assert manager.ask("delete", own).status_code == 204
        assert manager.ask("delete", own).status_code == 204
        after = manager.ask("get", own).json()
        assert_problem(manager.ask("post", f"{own}/secret"), 409)
    assert (body["enabled"], after["enabled"]) == (True, False)
    assert (body["url"], after["disabled_reason"]) == (receiver.url("/a?b=1"), "by its tenant")
    assert secret.startswith("whsec_")
    assert secret != second
    shown = b"".join(manager.ask("get", path).content for path in ("", own, f"{own}/deliveries"))
    assert b"whsec" not in shown


def test_the_role_of_the_api_cannot_read_a_secret(told: Told, as_role: Roles) -> None:
    with as_role("api"), pytest.raises(Exception, match="permission denied"), transaction.atomic():
        connection.cursor().execute("SELECT secret FROM bookings_webhooksecret")


def test_of_many_secrets_two_are_kept(manager: Manager, receiver: Receiver) -> None:
    id_ = manager.make(receiver.url()).json()["id"]
    made = [manager.ask("post", f"/{id_}/secret").json()["secret"] for _ in range(3)]
    kept = list(WebhookSecret.objects.filter(endpoint_id=id_).order_by("id"))
    assert [row.ends_at is None for row in kept] == [False, True]
    assert [row.secret for row in kept] == made[1:]


@pytest.mark.parametrize(
    "body",
    [
        None, {}, [], "https://hooks.example.com/", {"url": 1}, {"url": ""}, {"url": None},
        {"url": "https://hooks.example.com/", "secret": "whsec_mine"}, {"url": "https://127.0.0.1/"},
        {"url": "https://hooks.example.com:6379/"}, {"url": "http://169.254.169.254/"}, {"url": "https://localhost./"},
        {"url": "https://u:p@hooks.example.com/"}, {"url": "https://e.example/" + "a" * 3_000},
        {"url": "https://b\u00fc.example/\x00"},
    ],
)  # fmt: skip
def test_a_bad_endpoint_is_a_400_and_leaves_nothing(manager: Manager, body: Any) -> None:
    assert_problem(manager.ask("post", "", {} if body is None else body), 400)
    assert WebhookEndpoint.objects.count() == 0
    assert not hotels.tenant().announces


def test_the_same_url_twice_and_more_than_ten_are_a_409(
    manager: Manager, receiver: Receiver
) -> None:
    first = manager.make(receiver.url("/0")).json()["id"]
    again = assert_problem(manager.make(receiver.url("/0")), 409)
    assert first in again["detail"]
    for n in range(1, endpoints.ENDPOINTS_MAX):
        assert manager.make(receiver.url(f"/{n}")).status_code == 201
    assert_problem(manager.make(receiver.url("/more")), 409)
    assert WebhookEndpoint.objects.count() == endpoints.ENDPOINTS_MAX
    assert manager.ask("delete", f"/{first}").status_code == 204
    assert manager.make(receiver.url("/0")).status_code == 201


def test_another_tenants_endpoint_looks_like_one_that_is_not_there(
    told: Told, client_of: Callable[..., ApiClient], receiver: Receiver
) -> None:
    other = Manager("other", scopes=[Scope.WEBHOOKS.value])
    for tail in ROUTES:
        method = "post" if tail == "/secret" else "get"
        theirs = other.ask(method, f"/{told.endpoint_id}{tail}")
        unknown = other.ask(method, f"/{uuid4()}{tail}")
        nonsense = other.ask(method, f"/{str(told.endpoint_id).upper()}{tail}")
        answers = [without_instance(assert_problem(a, 404)) for a in (theirs, unknown, nonsense)]
        assert answers[0] == answers[1] == answers[2]
    assert_problem(other.ask("delete", f"/{told.endpoint_id}"), 404)
    assert other.ask("get", "").json() == {"items": []}
    assert told.endpoint.disabled_at is None
    assert WebhookSecret.objects.count() == 1
    # The same URL is nobody's secret.
    assert other.make(receiver.url()).status_code == 201


@pytest.mark.parametrize("tail", ["", *(f"/{uuid4()}{tail}" for tail in ROUTES)])
def test_a_key_without_the_scope_is_a_403(client_of: Callable[..., ApiClient], tail: str) -> None:
    other = Manager(scopes=[Scope.READ.value, Scope.WRITE.value])
    method = "post" if tail.endswith("/secret") else "get"
    assert_problem(other.ask(method, tail), 403)


def test_the_log_comes_in_pages_and_shows_no_body(told: Told, receiver: Receiver) -> None:
    receiver.says["/hook"] = receivers.status(500, b"canary-body")
    bookings = [told.park() for _ in range(3)]
    tenants.send()
    api = Manager(told.tenant.name, scopes=[Scope.WEBHOOKS.value])
    own = f"/{told.endpoint_id}/deliveries"
    first = api.ask("get", f"{own}?limit=2")
    assert first.status_code == 200, first.content
    rest = api.client.get(first.json()["next"], headers={"Authorization": f"Bearer {api.key}"})
    items = first.json()["items"] + rest.json()["items"]
    assert rest.json()["next"] is None
    assert [one["booking_id"] for one in items] == [str(b.id) for b in reversed(bookings)]
    assert {one["id"] for one in items} == {got.id for got in told.got}
    assert {one["status"] for one in items} == {"pending"}
    assert items[0]["tries"][0]["status"] == 500
    assert b"canary" not in first.content + rest.content
    other = Manager("other", scopes=[Scope.WEBHOOKS.value])
    foreign = first.json()["next"].replace(str(told.endpoint_id), str(uuid4()))
    assert other.client.get(
        foreign, headers={"Authorization": f"Bearer {other.key}"}
    ).status_code in (400, 404)


def test_of_many_at_once_no_more_than_ten_are_made(manager: Manager, receiver: Receiver) -> None:
    for n in range(endpoints.ENDPOINTS_MAX - 1):
        manager.make(receiver.url(f"/{n}"))
    racing = [psql.Thread(partial(manager.make, receiver.url(f"/race/{n}"))) for n in range(6)]
    assert sorted(one.result(20).status_code for one in racing) == [201, *[409] * 5]
    assert WebhookEndpoint.objects.count() == endpoints.ENDPOINTS_MAX

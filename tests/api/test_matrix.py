"""Who gets what: every route, with every method, by every kind of caller, against the table in `routes`.

Whoever is refused changes nothing: the tables are the same before and after all refusals. What only the owner may have
looks to another tenant as if it were not there.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from bookings.models import ApiKey, all_scopes
from ledger import sql
from tests import hotels
from tests.api import routes
from tests.api.conftest import ApiClient, as_the_api
from tests.api.problems import assert_problem, without_instance
from tests.api.routes import METHODS, OWNED, TENANTS, Allowed
from tests.webhooks.conftest import receiver
from tests.webhooks.receivers import Receiver

__all__ = ["receiver"]
TABLES = """
SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename ~ '^(ledger|bookings|auth)_'
    AND tablename <> 'bookings_apikey' ORDER BY 1
"""  # keys note when they were last used


@dataclass
class Stage:
    """A tenant with a booking and an endpoint, another with neither, and keys that say less than they should."""

    small: hotels.SmallHotel
    receiver: Receiver
    owner: ApiClient
    other: ApiClient
    booking: str
    endpoint: str
    is_walled: bool = True

    def path(self, pattern: str, *, of_nobody: bool = False) -> str:
        ids = [str(uuid.uuid4())] * 2 if of_nobody else [self.booking, self.endpoint]
        path = pattern.replace(OWNED[0], ids[0]).replace(OWNED[1], ids[1])
        if "availability" in path:
            path = path.replace("<str:code>", "SMALL") + f"?arrival={self.small.first}&nights=1"
        return f"/{path}"

    def body(self, name: str) -> Any:
        stay = self.small.stay()
        return {
            "stay": stay,
            "bulk": {"bookings": [{"idempotency_key": uuid.uuid4().hex, **stay}]},
            "hook": {"url": self.receiver.url(f"/{uuid.uuid4().hex}")},
        }[name]

    def ask(self, who: ApiClient | str | None, method: str, path: str, body: str = "") -> Any:
        """With a client's key, with a key as text, or with none; each time from another address."""
        key = who.key if isinstance(who, ApiClient) else who
        sent = {"If-Match": "*", "Idempotency-Key": uuid.uuid4().hex}
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        address = f"10.{'.'.join(str(n) for n in uuid.uuid4().bytes[:3])}"
        data = json.dumps(self.body(body)) if body else ""
        kind = "application/json" if body else ""
        with as_the_api() if self.is_walled else nullcontext():
            return self.owner.client.generic(
                method, path, data, kind, headers=sent, REMOTE_ADDR=address
            )


@pytest.fixture
def stage(small: hotels.SmallHotel, receiver: Receiver, body: dict[str, Any]) -> Stage:
    owner, other = ApiClient("owning-tenant"), ApiClient("other-tenant")
    made = owner.send("POST", "/v1/webhooks", {"url": receiver.url("/own")})
    return Stage(small, receiver, owner, other, owner.book(body), made.json()["id"])


def key_of(tenant: Any, **how: Any) -> str:
    return str(ApiKey.objects.create_key(tenant=tenant, name="matrix", **how)[1])


def refused(stage: Stage, pattern: str, allowed: Allowed | None) -> Iterator[tuple[Any, int]]:
    """(who, status): all who must not have it."""
    tenant, past = stage.owner.tenant, datetime(2020, 1, 1, tzinfo=UTC)
    yield None, 401
    yield key_of(tenant, expiry_date=past), 401
    yield key_of(tenant, revoked=True), 401
    if allowed is None:
        yield stage.owner, 405
        yield stage.other, 405
        return
    yield key_of(tenant, scopes=[s for s in all_scopes() if s != allowed.scope]), 403
    yield key_of(tenant, scopes=[]), 403
    if any(id_ in pattern for id_ in OWNED):
        yield stage.other, 404


def assert_plain(answer: Any) -> None:
    """Nothing for caches, nothing for other origins, no session."""
    assert answer["Cache-Control"] == "no-store"
    assert not [name for name in answer.headers if name.startswith("Access-Control")]
    assert not answer.cookies


def tables() -> list[Any]:
    names = [row[0] for row in sql.fetch(TABLES)]
    hashed = "SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {} t"
    return [(name, sql.fetch(hashed.format(name))[0][0]) for name in names]


def test_every_route_is_declared() -> None:
    found = {path for path, _ in routes.walk()}
    assert found == {*TENANTS, *routes.ANYBODY, *routes.STAFF, routes.LOG_IN}


@pytest.mark.parametrize("pattern", TENANTS)
def test_a_view_has_the_scopes_and_methods_that_are_declared(pattern: str) -> None:
    view: Any = dict(routes.walk())[pattern].callback
    assert view.cls.scopes == {m: allowed.scope for m, allowed in TENANTS[pattern].items()}
    assert {m.upper() for m in view.cls.http_method_names} == set(TENANTS[pattern])


@pytest.mark.parametrize("pattern", TENANTS)
def test_whoever_may_not_is_refused_and_changes_nothing(stage: Stage, pattern: str) -> None:
    before, path = tables(), stage.path(pattern)
    for method in METHODS:
        allowed = TENANTS[pattern].get(method)
        for who, status in refused(stage, pattern, allowed):
            answer = stage.ask(who, method, path, allowed.body if allowed else "")
            assert answer.status_code == status, (method, who, answer.content)
            assert_plain(answer)
            assert answer.has_header("WWW-Authenticate") == (status == 401)
            if method == "HEAD":
                assert answer.content == b""
            else:
                assert_problem(answer, status)
            if status == 405:
                assert set(answer["Allow"].split(", ")) == set(TENANTS[pattern])
    assert tables() == before


@pytest.mark.parametrize("pattern", TENANTS)
def test_whoever_may_gets_their_own(stage: Stage, pattern: str) -> None:
    is_owned = any(id_ in pattern for id_ in OWNED)
    for method, allowed in TENANTS[pattern].items():
        answer = stage.ask(stage.owner, method, stage.path(pattern), allowed.body)
        assert answer.status_code == allowed.status, (method, answer.content)
        assert_plain(answer)
        if not is_owned:
            theirs = stage.ask(stage.other, method, stage.path(pattern), allowed.body)
            assert theirs.status_code == allowed.status, (method, theirs.content)
            shown = theirs.content.decode()
            assert stage.booking not in shown
            assert stage.endpoint not in shown


@pytest.mark.parametrize("is_walled", [True, False])
@pytest.mark.parametrize("pattern", [p for p in TENANTS if any(id_ in p for id_ in OWNED)])
def test_another_tenants_looks_like_one_that_is_not_there(
    stage: Stage, pattern: str, is_walled: bool
) -> None:
    """Also without row-level security: neither wall leans on the other."""
    stage.is_walled = is_walled
    for method in TENANTS[pattern].keys() - {"HEAD"}:
        theirs = stage.ask(stage.other, method, stage.path(pattern))
        nobodys = stage.ask(stage.other, method, stage.path(pattern, of_nobody=True))
        answers = [without_instance(assert_problem(a, 404)) for a in (theirs, nobodys)]
        assert answers[0] == answers[1]
        assert theirs.headers.keys() == nobodys.headers.keys()


@pytest.mark.parametrize("path", sorted(routes.ANYBODY))
def test_what_anybody_may_read_shows_no_tenant(stage: Stage, path: str) -> None:
    before = tables()
    for method in METHODS:
        answers = [stage.ask(who, method, f"/{path}") for who in (None, stage.owner)]
        is_read = method in ("GET", "HEAD")
        assert [a.status_code for a in answers] == [200 if is_read else 405] * 2
        shown = answers[0].content.decode()
        for one in (
            stage.booking,
            stage.endpoint,
            str(stage.owner.tenant.id),
            stage.owner.tenant.name,
        ):
            assert one not in shown
    assert tables() == before


def logged_in(name: str, **how: Any) -> Client:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_user(name, **how))
    return client


@pytest.mark.parametrize(
    ("who", "methods"),
    [("nobody", METHODS), ("a tenant", ("GET", "POST")), ("a user", ("GET", "POST"))],
)
def test_pages_of_staff_are_for_staff(stage: Stage, who: str, methods: tuple[str, ...]) -> None:
    if who == "a user":
        client = logged_in("user")
    else:
        sent = {} if who == "nobody" else {"Authorization": f"Bearer {stage.owner.key}"}
        client = Client(enforce_csrf_checks=True, headers=sent)
    before = tables()
    for path in routes.STAFF.values():
        for method in methods:
            answer = client.generic(method, path)
            if method in routes.SAFE:
                assert answer.status_code == 302, (method, path)
                assert answer["Location"].startswith(("/admin/login/?next=", "/admin/")), path
            else:
                assert answer.status_code == 403, (method, path)  # no token
            assert stage.booking not in answer.content.decode()
    assert tables() == before


def test_staff_without_a_permission_see_no_page_of_a_model(stage: Stage) -> None:
    client = logged_in("new", is_staff=True)
    for path in routes.OF_MODELS.values():
        answer = client.get(path, follow=path.endswith("/1/"))
        told = (answer.status_code, answer.get("Location"))
        assert told in ((403, None), (302, "/admin/")), path  # or that there is no such row
        assert stage.booking not in answer.content.decode()


@pytest.mark.parametrize(
    "path",
    [
        "/", "/v1", "/v1/", "/v0/bookings", "/v2/bookings", "/v1/bookings/", "/v1/BOOKINGS", "/v1//bookings", "/admin",
        "/.git/config", "/.env", "/bench/bare", "/static/../config/settings.py", "/static/admin/js/core.js.map",
        "/v1/bookings/bulk/", "/v1/bookings/..%2fhotels", "/metrics/", "/debug",
    ],
)  # fmt: skip
def test_nothing_else_is_there(stage: Stage, path: str) -> None:
    for who in (None, stage.owner):
        answer = stage.ask(who, "GET", path)
        assert answer.status_code in (401, 404), answer.content
        assert answer["Content-Type"] == "application/problem+json"

"""A client of the API that sends exactly the bytes and headers it is told to."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from bookings.models import ApiKey
from tests import hotels
from tests.cases.conftest import sandbox, session_sandbox, stage

__all__ = ["sandbox", "session_sandbox", "stage"]


@contextmanager
def as_the_api() -> Iterator[None]:
    """What follows has the privileges of the API's role, and sees what that sees. Past Django, who counts statements."""
    connection.ensure_connection()
    connection.connection.execute("SET ROLE amends_api")
    try:
        yield
    finally:
        if connection.connection is not None and not connection.connection.closed:
            connection.connection.execute("RESET ROLE")


class ApiClient:
    """One tenant's view of the API."""

    def __init__(self, tenant: str = "agent", **key: Any) -> None:
        self.tenant = hotels.tenant(tenant)
        self.row, self.key = ApiKey.objects.create_key(tenant=self.tenant, name="test", **key)
        self.client = Client(raise_request_exception=False)

    def post(
        self,
        body: Any,
        key: str | None = "key",
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """POST a booking; a body that is not bytes yet is sent as JSON."""
        sent = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        if key is not None:
            sent["Idempotency-Key"] = key
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        with as_the_api():
            return self.client.post(
                "/v1/bookings", data=data, content_type=content_type, headers=sent
            )

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Any:
        return self.send("GET", path, headers=headers)

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Any request; a body that is not bytes yet is sent as JSON."""
        sent = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body)
        kind = "application/json" if data else ""
        with as_the_api():
            return self.client.generic(method, path, data, content_type=kind, headers=sent)

    def book(self, body: Any, key: str = "key") -> str:
        """The id of a booking that is accepted."""
        answer = self.post(body, key)
        assert answer.status_code == 202, answer.content
        return str(answer.json()["id"])


@pytest.fixture
def small(database: object) -> hotels.SmallHotel:
    return hotels.make(capacity=5)


@pytest.fixture
def api(database: object) -> ApiClient:
    return ApiClient()


@pytest.fixture
def client_of(database: object) -> Callable[..., ApiClient]:
    return ApiClient


@pytest.fixture
def body(small: hotels.SmallHotel) -> dict[str, Any]:
    """A request that is accepted."""
    return small.stay()

"""A client of the API that sends exactly the bytes and headers it is told to."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.test import Client

from bookings.models import ApiKey
from tests import hotels


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
        return self.client.post("/v1/bookings", data=data, content_type=content_type, headers=sent)

    def get(self, path: str, **headers: str) -> Any:
        sent = {"Authorization": f"Bearer {self.key}", **headers}
        return self.client.get(path, headers=sent)


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

"""Where the processes of a test stack find their data: the test database, and a broker database of their own."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import redis
from django.conf import settings
from django.db import connection


def database_url() -> str:
    """The test database, as an address for other processes."""
    found: Mapping[str, Any] = connection.settings_dict
    assert found["NAME"].startswith("test_"), "this is not a test database"
    host = found["OPTIONS"].get("host") or found["HOST"]
    login = f"{quote(found['USER'], safe='')}:{quote(found['PASSWORD'], safe='')}"
    if not host or host.startswith("/"):  # a socket: the default one, or in that directory
        return f"postgresql://{login}@/{found['NAME']}" + (f"?host={quote(host)}" if host else "")
    return f"postgresql://{login}@{host}:{found['PORT'] or 5432}/{found['NAME']}"


def broker_url(number: int) -> str:
    parts = urlsplit(settings.BROKER_URL)
    if parts.scheme == "redis+socket":
        return f"redis+socket://{parts.path}?virtual_host={number}"
    return str(urlunsplit(parts._replace(path=f"/{number}")))


def broker(number: int) -> redis.Redis:
    parts = urlsplit(settings.BROKER_URL)
    if parts.scheme == "redis+socket":
        return redis.Redis(unix_socket_path=unquote(parts.path), db=number)
    return redis.Redis.from_url(broker_url(number))

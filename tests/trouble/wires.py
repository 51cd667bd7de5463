"""The way from this process to its database, over a proxy that a test commands."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import connection

from recovery import proxy


def database() -> proxy.Target:
    """Where the test database's server listens."""
    known = connection.settings_dict
    host: str = known["HOST"] or known["OPTIONS"].get("host") or "/var/run/postgresql"
    port = known["PORT"] or 5432
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, int(port))


@contextmanager
def through(between: proxy.Proxy) -> Iterator[None]:
    """Within the block this process's connections to its database go through the proxy, unencrypted."""
    known: dict[str, Any] = connection.settings_dict
    before = {name: known[name] for name in ("HOST", "PORT", "OPTIONS")}
    connection.close()
    known |= {"HOST": proxy.HOST, "PORT": str(between.port)}
    known["OPTIONS"] = {**known["OPTIONS"], "sslmode": "disable", "gssencmode": "disable"}
    try:
        yield
    finally:
        connection.close()
        known |= before


class Cutter:
    """Counts the messages to the server while it is armed, and asks for the connection to be cut around the nth.

    `repeated`: what whoever waits asks again and again, as often as it happens to; of each only its first `times` count.
    """

    def __init__(self, repeated: Mapping[bytes, int] | None = None) -> None:
        self.seen = 0
        self.cut: list[bytes] = []
        self._repeated = repeated or {}
        self._left: dict[bytes, int] = {}
        self._nth = 0
        self._when: proxy.Cut = ""

    def arm(self, nth: int, when: proxy.Cut) -> None:
        self.seen, self.cut, self._nth, self._when = 0, [], nth, when
        self._left = dict(self._repeated)

    def __call__(self, piece: bytes) -> proxy.Cut:
        for known in self._left:
            if known in piece:
                self._left[known] -= 1
                if self._left[known] < 0:
                    return ""
        self.seen += 1
        if self.seen != self._nth:
            return ""
        self.cut.append(piece)
        return self._when

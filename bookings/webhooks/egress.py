"""The one way out to a tenant's server. It looks the name up once, judges every address, and connects to one of those.

The promise: what was judged is what is connected to (no second look-up in between, whatever the name answers then), the
certificate is still asked for the name, and no redirect is followed: neither is there a client here that could, nor a
proxy, a cookie or a credential. All of it ends by one deadline, and at most ANSWER_MAX bytes of an answer are read, to
be thrown away.
"""

import functools
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Any, override

import httpcore2
import httpx2
from django.conf import settings

from bookings.providers import answers, deadlines
from bookings.webhooks import addresses
from bookings.webhooks.addresses import Address, Refused, Rules, Target

ANSWER_MAX = 8 * 1024
CONNECT_SECONDS = 3.0
LOOK_UP_SECONDS = 3.0
ADDRESSES_TRIED = 3
ASKS_FOR_PATIENCE = (http.client.TOO_MANY_REQUESTS, http.client.SERVICE_UNAVAILABLE)
# In this order: the last are the most general. A failed handshake is a failed connection with a cause.
FAILURES: Mapping[type[Exception], str] = {
    httpcore2.ConnectTimeout: "connect_timeout",
    httpcore2.TimeoutException: "timeout",
    httpcore2.ConnectError: "connect_failed",
    httpcore2.ProtocolError: "broken_answer",
    httpcore2.NetworkError: "connection_lost",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one try: a status, or one word for why there is none. Nothing that the server wrote."""

    status: int | None = None
    error: str = ""
    retry_after: timedelta | None = None

    def is_delivered(self) -> bool:
        return self.status is not None and self.status // 100 == 2


def rules() -> Rules:
    return Rules(
        ports=frozenset(settings.WEBHOOK_PORTS),
        allows_http=settings.WEBHOOK_HTTP,
        networks=tuple(ipaddress.ip_network(network) for network in settings.WEBHOOK_NETWORKS),
    )


def _nothing() -> None:
    """For whoever does not need to know when a resolver has ended."""


def look_up(target: Target, seconds: float, ended: Callable[[], None] = _nothing) -> list[Address]:
    """Every address of the target, all of them allowed; Refused otherwise, a name without one like a name of ours, so that
    nobody learns which names there are inside. A resolver that hangs is left behind, and calls `ended` when it has.
    """
    found: SimpleQueue[list[Address]] = SimpleQueue()
    resolver = threading.Thread(
        target=_resolve, args=(target, found, ended), name="webhook-look-up", daemon=True
    )
    try:
        resolver.start()
    except RuntimeError:  # there is no thread left
        ended()
        raise
    try:
        known = found.get(timeout=max(seconds, 0))
    except Empty:
        raise Refused("name_timeout", "has a name that could not be looked up in time") from None
    if not known or not all(addresses.is_allowed(one, rules().networks) for one in known):
        raise Refused("address", "must have a name that leads to public addresses, and to no other")
    return known


def post(url: str, headers: Mapping[str, str], body: bytes) -> Answer:
    """Make one try, within WEBHOOK_SECONDS."""
    until = time.monotonic() + settings.WEBHOOK_SECONDS
    try:
        target = addresses.parse(url, rules())
        known = look_up(target, min(LOOK_UP_SECONDS, until - time.monotonic()))
        with deadlines.until(until):
            return _exchange(target, known, headers, body)
    except Refused as refused:
        return Answer(error=f"refused_{refused.code}")
    except tuple(FAILURES) as error:
        return Answer(error=_word(error))


def _resolve(target: Target, found: SimpleQueue[list[Address]], ended: Callable[[], None]) -> None:
    known: list[Address] = []
    try:
        rows = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        known = list(dict.fromkeys(ipaddress.ip_address(row[4][0]) for row in rows))
    except (OSError, ValueError):
        pass
    finally:
        ended()  # first: whoever has the answer may ask the next
    found.put(known)


def _exchange(
    target: Target, known: Sequence[Address], headers: Mapping[str, str], body: bytes
) -> Answer:
    patience = {"connect": CONNECT_SECONDS, "read": None, "write": None, "pool": CONNECT_SECONDS}
    with (
        httpcore2.ConnectionPool(
            ssl_context=_context(), max_connections=1, retries=0, network_backend=Pinned(known)
        ) as pool,
        pool.stream(
            "POST", target.url, headers=list(headers.items()), content=body, extensions={"timeout": patience}
        ) as response,
    ):  # fmt: skip
        told = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }
        read = 0
        for chunk in response.iter_stream():
            read += len(chunk)
            if read > ANSWER_MAX:
                break  # the status is all that counts
        return Answer(response.status, retry_after=_retry_after(response.status, told))


def _retry_after(status: int, headers: Mapping[str, str]) -> timedelta | None:
    if status in ASKS_FOR_PATIENCE and "retry-after" in headers:
        return answers.retry_after(headers)
    return None


class Pinned(deadlines.DeadlineBackend):
    """Connects to the addresses that were judged, whatever name it is given; the name is for TLS and for Host."""

    def __init__(self, known: Sequence[Address]) -> None:
        super().__init__()
        self._known = known

    @override
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        failed: httpcore2.ConnectError | httpcore2.ConnectTimeout | None = None
        for address in self._known[:ADDRESSES_TRIED]:
            try:
                return super().connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        assert failed is not None, "a name without addresses is refused"
        raise failed


@functools.cache
def _context() -> ssl.SSLContext:
    """Certificates are verified against the public authorities, or those that SSL_CERT_FILE names."""
    return httpx2.create_ssl_context(trust_env=True)


def _word(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return "tls_failed"
        cause = cause.__cause__ or cause.__context__
    return next(word for kind, word in FAILURES.items() if isinstance(error, kind))

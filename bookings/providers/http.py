"""The one way out to a provider: one client per process, one wire request per call, and an end to
every call.

Invariant: `exchange` returns either the whole answer or the outcome that follows from there being
none. No byte left us: `NotSent`. Anything later than that: `Unknown`, with what had come back by
then. There are no retries and no redirects (the engine alone decides about a second send), no
proxies and credentials from the environment, and no cookies.
"""

import atexit
import http.cookiejar
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
from django.conf import settings

from bookings import forked
from bookings.providers import answers, deadlines
from ledger import canonical, outcomes

BODY_MAX = 64 * 1024
KEEPALIVE_SECONDS = 5.0  # shorter than servers keep theirs, so that few requests meet a closing one
UNSENT: Mapping[type[Exception], str] = {
    httpx2.ConnectTimeout: "connect_timeout",
    httpx2.PoolTimeout: "pool_timeout",
    httpx2.ConnectError: "connect_failed",
    httpx2.UnsupportedProtocol: "bad_url",
    httpx2.InvalidURL: "bad_url",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What to send. `key` is the operation id; a request without effect has none."""

    method: str
    url: str
    seconds: float
    key: str = ""
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def exchange(request: Request) -> answers.Answer | outcomes.NotSent | outcomes.Unknown:
    """Make exactly one wire request, and take at most `request.seconds` over it."""
    deadline = time.monotonic() + request.seconds
    if request.seconds <= 0:
        return outcomes.NotSent("no_time_left")
    received = answers.Received()
    try:
        with deadlines.until(deadline):
            return _send(request, received)
    except tuple(UNSENT) as error:
        return outcomes.NotSent(_reason_unsent(error))
    except httpx2.HTTPError as error:
        reason = "deadline" if time.monotonic() >= deadline else _reason(error)
        return outcomes.Unknown(reason, received.evidence())


def close() -> None:
    """Close the process's connections; the next call opens new ones."""
    if (client := _own.drop()) is not None:
        client.close()


def _send(request: Request, received: answers.Received) -> answers.Answer | outcomes.Unknown:
    client = _client()
    prepared = client.build_request(
        request.method,
        request.url,
        content=None if request.body is None else canonical.encode(request.body).encode(),
        headers=_headers(request),
        timeout=_timeout(request.seconds),
    )
    response = client.send(prepared, stream=True)
    try:
        received.start(response.status_code, response.headers)
        if not _is_fresh(response):
            return outcomes.Unknown("unsolicited_answer", received.evidence())
        for chunk in response.iter_raw():
            received.add(chunk[: BODY_MAX + 1 - len(received.body)])
            if len(received.body) > BODY_MAX:
                return outcomes.Unknown("answer_too_large", received.evidence())
        return received.answer()
    finally:
        response.close()


def _is_fresh(response: httpx2.Response) -> bool:
    stream = response.extensions.get("network_stream")
    return not isinstance(stream, deadlines.DeadlineStream) or stream.is_answer_fresh


def _headers(request: Request) -> dict[str, str]:
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", **request.headers}
    if request.body is not None:
        headers["Content-Type"] = "application/json"
    if request.key:
        headers["Idempotency-Key"] = request.key
    return headers


def _timeout(seconds: float) -> httpx2.Timeout:
    connect = min(settings.PROVIDER_CONNECT_SECONDS, seconds)
    return httpx2.Timeout(connect=connect, read=seconds, write=seconds, pool=connect)


def _reason_unsent(error: Exception) -> str:
    return next(reason for kind, reason in UNSENT.items() if isinstance(error, kind))


def _reason(error: httpx2.HTTPError) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "timeout"
    if isinstance(error, httpx2.RemoteProtocolError):
        return "broken_answer"
    return "connection_lost"


def _client() -> httpx2.Client:
    return _own.get()


def _make() -> httpx2.Client:
    limits = httpx2.Limits(
        max_connections=2 * settings.SLOTS,  # abandoned calls hold theirs until their deadline
        max_keepalive_connections=settings.SLOTS,
        keepalive_expiry=KEEPALIVE_SECONDS,
    )
    context = httpx2.create_ssl_context(trust_env=False)
    no_cookies = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
    return httpx2.Client(
        transport=deadlines.DeadlineTransport(context=context, limits=limits),
        trust_env=False,
        follow_redirects=False,
        cookies=no_cookies,
        headers={"User-Agent": "amends"},
    )


_own = forked.Own(_make)
atexit.register(close)

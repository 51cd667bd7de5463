"""What a client may do how often, and how it is told: requests of a key, and wrong keys of an address and of a prefix.

A client reads where it stands in `RateLimit` and `RateLimit-Policy`; over a limit it gets a 429 that names the policy and
says when to come again, and nothing else has happened. Knows nothing of views: authentication imports it.
"""

import ipaddress
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus

from django.conf import settings
from django.http import HttpRequest
from rest_framework import exceptions
from rest_framework.request import Request

from bookings.api import faults
from bookings.api.rates import WINDOW_SECONDS, Limit, Standing
from ledger import telemetry

EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
KEY, OPEN_JOBS, WRONG_KEYS = "key", "open-jobs", "wrong-keys"
SUBSCRIBER_BITS = 64  # of an IPv6 address: whoever has one has as many as there are below it
_requests = Limit("key")
_wrong_keys = {"address": Limit("address"), "prefix": Limit("prefix")}


def count_request(prefix: str, limit: int, units: int = 1) -> Standing:
    """Requests of one key; `units` at once, or none of them."""
    return _requests.take(prefix, limit, units)


def headers(standing: Standing) -> dict[str, str]:
    """Where a key stands, in structured fields."""
    return {
        "RateLimit-Policy": f'"{KEY}";q={standing.limit};w={WINDOW_SECONDS}',
        "RateLimit": f'"{KEY}";r={standing.left};t={standing.reset_seconds}',
    }


def refusal(standing: Standing) -> faults.Problem:
    """For a key that is over its rate, or asks for more than it can ever have."""
    if standing.retry_seconds is None:
        detail = f"this key may send {standing.limit} in {WINDOW_SECONDS} s: send fewer at once"
        return faults.invalid("", "over_rate", detail)
    detail = f"this key may send {standing.limit} requests in {WINDOW_SECONDS} s"
    return exceeded(KEY, detail, standing.retry_seconds)


def exceeded(policy: str, detail: str, retry_seconds: int) -> faults.Problem:
    members = {"type": EXCEEDED, "violated-policies": [policy]}
    return faults.Problem(
        HTTPStatus.TOO_MANY_REQUESTS, "quota-exceeded", detail, retry_after=retry_seconds, members=members,
    )  # fmt: skip


@contextmanager
def guess(
    address: str,
    prefix: str,
    *,
    wrong: type[Exception] = exceptions.AuthenticationFailed,
    most: int | None = None,
) -> Iterator[None]:
    """Around the look at a key that may be wrong. It is counted before, so that many at once are not more than many in a
    row, and given back unless the block raises `wrong`. Over the limit a right key is refused like a wrong one.
    """
    with ExitStack() as taken:
        for kind, name in (("address", address), ("prefix", prefix)):
            standing = _wrong_keys[kind].take(name, most or settings.WRONG_KEYS_PER_MINUTE)
            if not standing.is_taken:  # nobody looked: what was taken before goes back
                telemetry.emit("keys.guessed", level="warning", reason=kind, address=address)
                detail = "too many wrong keys came from your address or under this prefix"
                raise exceeded(WRONG_KEYS, detail, standing.retry_seconds or WINDOW_SECONDS)
            taken.callback(_wrong_keys[kind].give_back, name)
        try:
            yield
        except wrong:
            taken.pop_all()
            raise


def address_of(request: Request | HttpRequest) -> str:
    """Where a request comes from: what the outermost of our TRUSTED_PROXIES saw. What a client itself writes into
    X-Forwarded-For stands before that and is not read. An IPv6 address stands for its network.
    """
    peer = str(request.META.get("REMOTE_ADDR", ""))
    told = [one.strip() for one in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    found = told[-settings.TRUSTED_PROXIES :] if settings.TRUSTED_PROXIES else [peer]
    return _network(found[0]) or _network(peer) or "unknown"


def _network(text: str) -> str | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), SUBSCRIBER_BITS), strict=False))

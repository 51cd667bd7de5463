"""Who is asking: `Authorization: Bearer <prefix>.<secret>`, a key of one tenant; before the prefix, where KEY_ENVIRONMENT
is set, that and an underscore.

Missing, malformed, unknown, revoked and expired keys, and those of another environment, all get the same 401. Look-ups are
kept for some seconds, so that a request costs neither a hash nor a query; a revoked or expired key therefore works for at
most CACHE_SECONDS longer. Looking at a key that may be wrong is limited, by address and by prefix: see `limits.guess`.
"""

import hashlib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, override
from uuid import UUID

from django.conf import settings
from django.db import Error
from django.db.models import Q
from django.db.models.functions import Now
from rest_framework import exceptions, permissions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from bookings.api import limits
from bookings.models import ApiKey
from ledger import telemetry

if TYPE_CHECKING:  # DRF's views import this module by the name in its settings
    from rest_framework.views import APIView

CACHE_SECONDS = 15.0
CACHE_SIZE = 4096
LAST_USED_STEP = timedelta(minutes=1)  # how exact `last_used_at` is
_BEARER = re.compile(
    r"Bearer (?:([a-z0-9]{1,16})_)?([A-Za-z0-9]{8})\.([A-Za-z0-9]{32})", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class TenantUser:
    """The tenant on whose behalf a request is made, in the place of DRF's user."""

    id: UUID
    name: str
    is_authenticated: bool = True


@dataclass(frozen=True, slots=True)
class Key:
    """What a request may do."""

    prefix: str
    scopes: frozenset[str]
    rate_per_minute: int


Identity = tuple[TenantUser, Key]


class Lookups:
    """Bounded in size and in time; keeps hashes of headers, never a key. Only keys that were found are kept."""

    def __init__(
        self, seconds: float, size: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds, self._size, self._clock = seconds, size, clock
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, tuple[float, Identity]] = OrderedDict()

    def get(self, header: str) -> Identity | None:
        with self._lock:
            until, identity = self._found.get(_digest(header), (0.0, None))
        return identity if self._clock() < until else None

    def has_seen(self, header: str) -> bool:
        """Whether it was right not long ago: those who guess under its prefix then hold up nobody who has the key."""
        with self._lock:
            return _digest(header) in self._found

    def forget(self, header: str) -> None:
        with self._lock:
            self._found.pop(_digest(header), None)

    def put(self, header: str, identity: Identity) -> None:
        with self._lock:
            self._found[_digest(header)] = (self._clock() + self._seconds, identity)
            self._found.move_to_end(_digest(header))
            while len(self._found) > self._size:
                self._found.popitem(last=False)


lookups = Lookups(CACHE_SECONDS, CACHE_SIZE)


class ApiKeyAuthentication(BaseAuthentication):
    """`request.user` is a TenantUser, `request.auth` a Key."""

    @override
    def authenticate(self, request: Request) -> Identity:
        header = request.META.get("HTTP_AUTHORIZATION", "")
        identity = lookups.get(header)
        if identity is None:
            identity = _look_up(header, limits.address_of(request))
            lookups.put(header, identity)
        return identity

    @override
    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="amends"'


def tenant_of(request: Request) -> TenantUser:
    """On whose behalf a request that passed HasTenant is made."""
    user: object = request.user
    assert isinstance(user, TenantUser), "a view of the API has HasTenant"
    return user


def key_of(request: Request) -> Key:
    """With which key a request that passed HasTenant is made."""
    assert isinstance(request.auth, Key), "a view of the API has HasTenant"
    return request.auth


class HasTenant(permissions.BasePermission):
    """A key, with the scope that the view's `scopes` names for the method; a method without one is refused there."""

    message = "this key lacks the scope for it"
    code = "insufficient_scope"

    @override
    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not isinstance(request.auth, Key):
            return False
        scope = getattr(view, "scopes", {}).get(request.method)
        if scope is None:
            raise exceptions.MethodNotAllowed(str(request.method))
        return scope in request.auth.scopes


def _look_up(header: str, address: str) -> Identity:
    """What is no key of ours by its looks costs nothing, and is not counted."""
    found = _BEARER.fullmatch(header)
    if not found or (found[1] or "") != settings.KEY_ENVIRONMENT:
        raise _unauthenticated()
    if not lookups.has_seen(header):
        with limits.guess(address, found[2]):
            return _verify(found[2], found[3])
    try:
        return _verify(found[2], found[3])
    except exceptions.AuthenticationFailed:
        lookups.forget(header)  # it has ended, and is a guess from now on
        raise


def _verify(prefix: str, secret: str) -> Identity:
    usable = ApiKey.objects.filter(prefix=prefix, revoked=False).filter(
        Q(expiry_date__isnull=True) | Q(expiry_date__gt=Now())
    )
    key = usable.select_related("tenant").first()
    # An unknown prefix costs the same comparison as a wrong secret.
    expected = key.hashed_key if key else ApiKey.objects.key_generator.hash(prefix)
    is_right = ApiKey.objects.key_generator.verify(f"{prefix}.{secret}", expected)
    if key is None or not is_right:
        raise _unauthenticated()
    try:
        _note_use(key)
    except Error as error:  # a key is as good on a server that does not write
        telemetry.emit("key.use_not_noted", level="warning", error_class=type(error).__name__)
    rate = key.rate_per_minute or settings.RATE_PER_MINUTE
    return TenantUser(key.tenant.id, key.tenant.name), Key(prefix, frozenset(key.scopes), rate)


def _note_use(key: ApiKey) -> None:
    long_ago = Q(last_used_at__isnull=True) | Q(last_used_at__lt=Now() - LAST_USED_STEP)
    ApiKey.objects.filter(long_ago, pk=key.pk).update(last_used_at=Now())


def _unauthenticated() -> exceptions.AuthenticationFailed:
    return exceptions.AuthenticationFailed("send a valid API key: Authorization: Bearer <key>")


def _digest(header: str) -> bytes:
    return hashlib.sha256(header.encode("utf-8", "surrogateescape")).digest()

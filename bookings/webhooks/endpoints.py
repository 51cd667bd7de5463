"""Where a tenant wants to be told: made, listed, ended, and given new secrets, always of one tenant.

The promise: a secret is shown once, when it is made, and this role cannot read it again. Making the first endpoint is what
makes a tenant's jobs leave events. A URL is checked here so that a mistake is told at once; what counts is the check of
every try (`egress`), because names change. What a tenant may not make is refused before its name server is asked, and few
are asked at once: a name that takes long holds few threads of the API, and none that another tenant needs.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

from django.db import models, transaction
from django.db.models.functions import Now

from bookings.models import WebhookEndpoint, WebhookSecret
from bookings.webhook_tables import URL_LENGTH
from bookings.webhooks import addresses, egress, signing
from bookings.webhooks.addresses import Refused
from ledger import events, sql

ENDPOINTS_MAX = 10
MADE_MAX = 50  # in a day, with those that ended: their rows stay
LOOK_UPS_MAX = 2  # that requests of this process wait for, and one of a tenant
RESOLVERS_MAX = 16  # at work in this process, also those that nobody waits for any more
LISTED_MAX = 100  # with those that were disabled, the newest first
BOTH_VALID = timedelta(days=1)

UNTIL_NEXT = """
SELECT ceil(extract(epoch FROM made.created_at + interval '1 day' - ledger_now()))::int
FROM (SELECT created_at FROM bookings_webhookendpoint WHERE tenant_id = %s
    ORDER BY id DESC OFFSET %s LIMIT 1) made
WHERE made.created_at > ledger_now() - interval '1 day'
"""


class TooMany(Exception):
    """The tenant has ENDPOINTS_MAX enabled endpoints."""


class AlreadyThere(Exception):
    """An enabled endpoint of the tenant has this URL."""

    def __init__(self, endpoint_id: UUID) -> None:
        self.endpoint_id = endpoint_id
        super().__init__(f"endpoint {endpoint_id} has this URL")


class TooManyToday(Exception):
    """The tenant has made MADE_MAX endpoints within a day, and may make the next in so many seconds."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(f"the next may be made in {seconds} s")


class Busy(Exception):
    """As many names are looked up as may be at once, or one of the tenant's."""


class Disabled(Exception):
    """The endpoint has ended, and stays so."""


@dataclass(frozen=True, slots=True)
class Made:
    """An endpoint with a secret that is not shown again."""

    endpoint: WebhookEndpoint
    secret: str


def create(tenant_id: UUID, url: str) -> Made:
    """A new endpoint. Refused for a URL that nothing is sent to; AlreadyThere; TooMany; TooManyToday; Busy."""
    target = addresses.parse(url, egress.rules())
    if len(target.url) > URL_LENGTH:
        raise Refused("length", f"must have at most {URL_LENGTH} characters")
    _check(tenant_id, target.url)
    if not target.is_address:
        with look_ups.waiting(tenant_id) as ended:
            egress.look_up(target, egress.LOOK_UP_SECONDS, ended)
    secret = signing.new_secret()
    with transaction.atomic(durable=True):
        events.announce(tenant_id)  # its lock makes the tenant's requests take turns
        _check(tenant_id, target.url)
        endpoint = WebhookEndpoint.objects.create(tenant_id=tenant_id, url=target.url)
        WebhookSecret.objects.create(endpoint=endpoint, secret=secret)
    found = find(tenant_id, endpoint.id)
    assert found is not None, "nothing removes an endpoint"
    return Made(found, secret)


def find(tenant_id: UUID, endpoint_id: UUID) -> WebhookEndpoint | None:
    """A tenant's endpoint; None for one that is not there or another tenant's, which look the same."""
    return _of(tenant_id).filter(id=endpoint_id).first()


def listed(tenant_id: UUID) -> list[WebhookEndpoint]:
    """The enabled ones first, then the newest."""
    is_disabled = models.F("disabled_at").asc(nulls_first=True)
    return list(_of(tenant_id).order_by(is_disabled, "-id")[:LISTED_MAX])


def disable(endpoint: WebhookEndpoint, reason: str) -> None:
    """End it for good. What it still had to be told stays in the log, and is not sent. Its secrets go with it, whoever
    ends it: by trigger.
    """
    open_one = WebhookEndpoint.objects.filter(id=endpoint.id, disabled_at__isnull=True)
    open_one.update(disabled_at=Now(), disabled_reason=reason)


def rotate(endpoint: WebhookEndpoint) -> str:
    """A new secret; the one before stays valid for a day, one from before that ends now. Disabled."""
    secret = signing.new_secret()
    with transaction.atomic(durable=True):
        enabled = WebhookEndpoint.objects.filter(id=endpoint.id, disabled_at__isnull=True)
        if not enabled.select_for_update(no_key=True).values_list("id").first():
            raise Disabled
        known = WebhookSecret.objects.filter(endpoint=endpoint)
        known.filter(ends_at__isnull=False).delete()
        known.update(ends_at=Now() + BOTH_VALID)
        WebhookSecret.objects.create(endpoint=endpoint, secret=secret)
    return secret


class LookUps:
    """The look-ups under way in this process. A resolver may be at work long after the request that it was for; until it has
    ended its tenant gets no other, and takes nobody else's place.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tenants: set[UUID] = set()
        self._waiting = 0

    @contextmanager
    def waiting(self, tenant_id: UUID) -> Iterator[Callable[[], None]]:
        """A place for as long as its request waits, and what to call when the resolver has ended; Busy."""
        with self._lock:
            is_full = self._waiting >= LOOK_UPS_MAX or len(self._tenants) >= RESOLVERS_MAX
            if is_full or tenant_id in self._tenants:
                raise Busy
            self._tenants.add(tenant_id)
            self._waiting += 1
        try:
            yield partial(self._give_back, tenant_id)
        finally:
            with self._lock:
                self._waiting -= 1

    def _give_back(self, tenant_id: UUID) -> None:
        with self._lock:
            self._tenants.discard(tenant_id)


look_ups = LookUps()


def _check(tenant_id: UUID, url: str) -> None:
    """Whether the tenant may make one more."""
    enabled = _of(tenant_id).filter(disabled_at__isnull=True)
    if (known := enabled.filter(url=url).first()) is not None:
        raise AlreadyThere(known.id)
    if enabled.count() >= ENDPOINTS_MAX:
        raise TooMany
    if until_next := sql.fetch(UNTIL_NEXT, [tenant_id, MADE_MAX - 1]):
        raise TooManyToday(max(1, until_next[0][0]))


def _of(tenant_id: UUID) -> models.QuerySet[WebhookEndpoint]:
    return WebhookEndpoint.objects.filter(tenant_id=tenant_id)

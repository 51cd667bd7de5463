"""The ticket step of a trip, its pivot: what is issued cannot be taken back, so it comes last and
is never undone.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol

from django.conf import settings

from bookings.providers import protocol, sandbox
from ledger import outcomes, saga


class Stay(Protocol):
    """What of a trip's input the ticket shows."""

    @property
    def subject(self) -> str: ...
    @property
    def hotel(self) -> str: ...
    @property
    def room_type(self) -> str: ...
    @property
    def arrival(self) -> str: ...
    @property
    def nights(self) -> int: ...
    @property
    def guest(self) -> str: ...


def issue_arguments(request: Stay, _done: Mapping[str, saga.Done]) -> Mapping[str, Any]:
    return {
        "subject": request.subject,
        "hotel": request.hotel,
        "room_type": request.room_type,
        "arrival": request.arrival,
        "nights": request.nights,
        "guest": request.guest,
    }


def issue(call: saga.Call) -> outcomes.Outcome:
    return _provider().issue(call)


def find(call: saga.Call) -> outcomes.Sighted:
    return _provider().find(call)


def bury(call: saga.Call) -> outcomes.Outcome:
    return _provider().bury(call)


def _provider() -> protocol.Tickets:
    return sandbox.SandboxTickets(settings.TICKET_URL)


EFFECT = saga.Effect(
    provider="tickets",
    key_lifetime=timedelta(seconds=settings.PROVIDER_KEY_LIFETIME_SECONDS),
    probe=find,
    tombstone=bury,
    request_lifetime=timedelta(seconds=settings.PROVIDER_REQUEST_LIFETIME_SECONDS),
    probe_lag=timedelta(seconds=settings.PROVIDER_PROBE_LAG_SECONDS),
    call_seconds=settings.PROVIDER_CALL_SECONDS,
)

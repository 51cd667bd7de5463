"""The payment step of a trip: capture, its undo, the question what became of either, and the tombstone of either.

The operation id is the provider's idempotency key for both, so that sending again is never paying
again; a refund names the capture by the reference in that capture's receipt.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol

from django.conf import settings

from bookings.providers import protocol, sandbox
from ledger import outcomes, saga

CAPTURE_STEP = "capture_payment"


class Payable(Protocol):
    """What of a trip's input the payment needs."""

    @property
    def amount_minor(self) -> int: ...
    @property
    def currency(self) -> str: ...
    @property
    def account(self) -> str: ...
    @property
    def subject(self) -> str: ...


def capture_arguments(request: Payable, _done: Mapping[str, saga.Done]) -> Mapping[str, Any]:
    return {
        "amount_minor": request.amount_minor,
        "currency": request.currency,
        "account": request.account,
        "subject": request.subject,
    }


def refund_arguments(request: Payable, done: Mapping[str, saga.Done]) -> Mapping[str, Any]:
    """All that was captured, back to where it came from. KeyError where nothing was."""
    return {
        "capture": done[CAPTURE_STEP].ref,
        "amount_minor": request.amount_minor,
        "currency": request.currency,
        "subject": request.subject,
    }


def capture(call: saga.Call) -> outcomes.Outcome:
    return _provider().capture(call)


def refund_if_captured(call: saga.Call) -> outcomes.Outcome:
    return _provider().refund(call)


def find(call: saga.Call) -> outcomes.Sighted:
    return _provider().find(call)


def bury(call: saga.Call) -> outcomes.Outcome:
    return _provider().bury(call)


def _provider() -> protocol.Payments:
    return sandbox.SandboxPayments(settings.PAYMENT_URL)


EFFECT = saga.Effect(
    provider="payments",
    key_lifetime=timedelta(seconds=settings.PROVIDER_KEY_LIFETIME_SECONDS),
    probe=find,
    tombstone=bury,
    request_lifetime=timedelta(seconds=settings.PROVIDER_REQUEST_LIFETIME_SECONDS),
    probe_lag=timedelta(seconds=settings.PROVIDER_PROBE_LAG_SECONDS),
    call_seconds=settings.PROVIDER_CALL_SECONDS,
)

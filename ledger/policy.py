"""The engine's patience as settings give it: backoff of what is tried again, and how long a decision to send holds."""

from datetime import timedelta

from django.conf import settings

from ledger import patience


def current() -> patience.Policy:
    return patience.Policy(
        timedelta(seconds=settings.BACKOFF_SECONDS),
        timedelta(seconds=settings.BACKOFF_SECONDS_MAX),
        send_within=timedelta(seconds=settings.LEASE_SECONDS),
    )

"""The tables of webhooks: where a tenant wants to be told, the secrets to sign with, and what was sent.

Kept here: an event is delivered to an endpoint as one row, however often it is fanned out (`bookings_webhookdelivery_once`),
and its body is frozen in that row, so that every try says the same under the same id. Secrets have a table of their own, so
that the API's role may write one and read none; they go when their endpoint ends (`bookings_webhookendpoint_forget`).
"""

from typing import override

from django.db import models
from django.db.models import Q
from django.db.models.functions import UUID7, Now

URL_LENGTH = 2_000
REASON_LENGTH = 32


class WebhookEndpoint(models.Model):
    """A URL of a tenant. `failures` counts tries in a row that failed; until `paused_until` nothing is sent to it."""

    id = models.UUIDField(primary_key=True, db_default=UUID7(), editable=False)
    tenant = models.ForeignKey(
        "ledger.Tenant", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    url = models.CharField(max_length=URL_LENGTH)
    failures = models.PositiveIntegerField(db_default=0)
    succeeded_at = models.DateTimeField(null=True)
    paused_until = models.DateTimeField(null=True)
    disabled_at = models.DateTimeField(null=True)
    disabled_reason = models.CharField(max_length=REASON_LENGTH, db_default="")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "url"],
                condition=Q(disabled_at__isnull=True),
                name="bookings_webhookendpoint_url_once",
            ),
            models.CheckConstraint(
                condition=Q(disabled_at__isnull=True, disabled_reason="")
                | (Q(disabled_at__isnull=False) & ~Q(disabled_reason="")),
                name="bookings_webhookendpoint_reason_iff_disabled",
            ),
        ]
        indexes = [models.Index(fields=["tenant", "id"], name="bookings_webhookendpoint_own")]

    @override
    def __str__(self) -> str:
        return str(self.id)


class WebhookSecret(models.Model):
    """What deliveries are signed with. `ends_at`: of one that was rotated out, and is still valid until then."""

    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.PROTECT, related_name="secrets")
    secret = models.CharField(max_length=64)
    created_at = models.DateTimeField(db_default=Now())
    ends_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["endpoint"],
                condition=Q(ends_at__isnull=True),
                name="bookings_webhooksecret_one_without_end",
            )
        ]

    @override
    def __str__(self) -> str:
        return f"{self.endpoint_id} from {self.created_at:%Y-%m-%d}"


class WebhookDelivery(models.Model):
    """An event on its way to an endpoint.

    `due_at` is there exactly until it is delivered or given up; `attempts` is also the fence of a claim: an answer counts
    only for the attempt that it belongs to. `tries` has the last few, with what came of each.
    """

    event = models.ForeignKey("ledger.Event", on_delete=models.PROTECT, related_name="+")
    endpoint = models.ForeignKey(
        WebhookEndpoint, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    booking = models.ForeignKey("bookings.Booking", on_delete=models.PROTECT, related_name="+")
    type = models.CharField(max_length=64)
    body = models.TextField()
    attempts = models.PositiveIntegerField(db_default=0)
    due_at = models.DateTimeField(null=True)
    lease_until = models.DateTimeField(null=True)
    tries = models.JSONField(db_default=[])
    term_from = models.DateTimeField(db_default=Now())
    delivered_at = models.DateTimeField(null=True)
    given_up_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        permissions = [("replay_webhookdelivery", "Can send a webhook again")]
        constraints = [
            models.UniqueConstraint(
                fields=["endpoint", "event"], name="bookings_webhookdelivery_once"
            ),
            models.CheckConstraint(
                condition=Q(
                    due_at__isnull=False, delivered_at__isnull=True, given_up_at__isnull=True
                )
                | Q(due_at__isnull=True, delivered_at__isnull=False, given_up_at__isnull=True)
                | Q(due_at__isnull=True, delivered_at__isnull=True, given_up_at__isnull=False),
                name="bookings_webhookdelivery_due_iff_open",
            ),
        ]
        indexes = [
            models.Index(
                fields=["endpoint", "due_at"],
                condition=Q(due_at__isnull=False),
                name="bookings_webhookdelivery_due",
            ),
            models.Index(
                fields=["endpoint"],
                condition=Q(lease_until__isnull=False),
                name="bookings_webhookdelivery_out",
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"{self.event_id} to {self.endpoint_id}"

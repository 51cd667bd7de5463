"""Read-only pages of the travel domain: bookings change through their jobs, keys through `manage.py apikey`. The one act is
to send a webhook again, which needs its own permission and leaves a line in the staff log.
"""

from typing import Any, override

from django.contrib import admin, messages
from django.contrib.postgres.expressions import ArraySubquery
from django.db import transaction
from django.db.models import DateField, ExpressionWrapper, F, OuterRef, QuerySet
from django.http import HttpRequest
from rest_framework_api_key.models import APIKey as PackageKey

from bookings import models
from bookings.webhooks import deliveries
from ledger.admin import ReadOnlyAdmin

# The package's own, tenantless keys are not used.
admin.site.unregister(PackageKey)


def _holders() -> QuerySet[Any, Any]:
    """The operation ids that keep a room of the night."""
    end = ExpressionWrapper(F("arrival") + F("nights"), output_field=DateField())
    living = [models.ReservationState.HELD.value, models.ReservationState.SECURED.value]
    night = OuterRef("night")
    return (
        models.Reservation.objects.alias(end=end)
        .filter(
            room_type=OuterRef("room_type"), state__in=living, arrival__lte=night, end__gt=night
        )
        .order_by("id")
        .values_list("holder")
    )


@admin.register(models.Hotel)
class HotelAdmin(ReadOnlyAdmin):
    list_display = ["code", "name", "timezone", "currency"]


@admin.register(models.RoomType)
class RoomTypeAdmin(ReadOnlyAdmin):
    list_display = ["hotel", "code", "when_held"]
    list_select_related = ["hotel"]


@admin.register(models.RoomMonth)
class RoomMonthAdmin(ReadOnlyAdmin):
    list_display = ["room_type", "month", "rate_minor", "capacity"]
    list_select_related = ["room_type"]


@admin.register(models.RoomNight)
class RoomNightAdmin(ReadOnlyAdmin):
    list_display = ["room_type", "night", "taken", "capacity", "holders"]
    list_select_related = ["room_type"]
    ordering = ["room_type", "night"]

    @override
    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        nights: QuerySet[Any] = super().get_queryset(request)
        kept: QuerySet[Any] = nights.annotate(kept_by=ArraySubquery(_holders()))
        return kept

    @admin.display(description="held or secured by")
    def holders(self, night: Any) -> str:
        return ", ".join(night.kept_by) or "-"


@admin.register(models.Reservation)
class ReservationAdmin(ReadOnlyAdmin):
    list_display = [
        "holder",
        "room_type",
        "arrival",
        "nights",
        "state",
        "expires_at",
        "version",
    ]
    list_filter = ["state"]
    list_select_related = ["room_type"]
    search_fields = ["holder"]
    ordering = ["-id"]


@admin.register(models.Booking)
class BookingAdmin(ReadOnlyAdmin):
    list_display = [
        "id",
        "tenant",
        "room_type",
        "arrival",
        "nights",
        "amount_minor",
        "currency",
        "created_at",
    ]
    list_select_related = ["tenant", "room_type"]
    search_fields = ["=client_reference"]
    ordering = ["-id"]


@admin.register(models.ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """The hash is nobody's business, nor the link to a row, which is made of it."""

    list_display = [
        "prefix", "tenant", "name", "scopes", "rate_per_minute", "created", "expiry_date", "revoked", "last_used_at",
    ]  # fmt: skip
    list_display_links = None
    list_select_related = ["tenant"]
    exclude = ["hashed_key"]


@admin.register(models.WebhookEndpoint)
class WebhookEndpointAdmin(ReadOnlyAdmin):
    """Its secrets are on no page: the role of these pages cannot read them."""

    list_display = [
        "id", "tenant", "url", "failures", "succeeded_at", "paused_until", "disabled_at", "disabled_reason",
    ]  # fmt: skip
    list_select_related = ["tenant"]
    search_fields = ["=id", "=tenant__name"]
    ordering = ["-id"]


@admin.register(models.WebhookDelivery)
class WebhookDeliveryAdmin(ReadOnlyAdmin):
    list_display = [
        "event_id",
        "type",
        "endpoint",
        "attempts",
        "due_at",
        "delivered_at",
        "given_up_at",
    ]
    list_select_related = ["endpoint"]
    # The event itself is the ledger's, and not for the role of these pages.
    fields = [
        "event_id", "type", "endpoint", "booking", "body", "attempts", "tries", "due_at", "lease_until", "term_from",
        "delivered_at", "given_up_at", "created_at",
    ]  # fmt: skip
    search_fields = ["=event_id", "=endpoint__id", "=booking_id"]
    ordering = ["-id"]
    actions = ["replay"]

    def has_replay_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("bookings.replay_webhookdelivery")

    @admin.action(description="Send again, under the same id", permissions=["replay"])
    def replay(self, request: HttpRequest, chosen: QuerySet[models.WebhookDelivery]) -> None:
        """Those whose endpoint is enabled and that are not out right now."""
        with transaction.atomic(durable=True):
            rows = {row.pk: row for row in chosen}
            due = deliveries.replay(rows)
            for pk in sorted(due):
                self.log_change(request, rows[pk], "Sent again")
        text = f"{len(due)} of {len(rows)} are due again; the endpoint of the others has ended, or they are out."
        self.message_user(request, text, messages.SUCCESS if due else messages.WARNING)

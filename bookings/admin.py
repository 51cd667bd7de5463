"""Read-only pages of the travel domain: bookings change through their jobs, keys through `manage.py apikey`."""

from typing import Any, override

from django.contrib import admin
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import DateField, ExpressionWrapper, F, OuterRef, QuerySet
from django.http import HttpRequest
from rest_framework_api_key.models import APIKey as PackageKey

from bookings import models
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
    """The hash is nobody's business."""

    list_display = [
        "prefix", "tenant", "name", "scopes", "created", "expiry_date", "revoked", "last_used_at",
    ]  # fmt: skip
    list_select_related = ["tenant"]
    exclude = ["hashed_key"]

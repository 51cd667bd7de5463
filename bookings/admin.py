"""Read-only pages of the travel domain: bookings change through their jobs, keys through `manage.py apikey`."""

from django.contrib import admin
from rest_framework_api_key.models import APIKey as PackageKey

from bookings import models
from ledger.admin import ReadOnlyAdmin

# The package's own, tenantless keys are not used.
admin.site.unregister(PackageKey)


@admin.register(models.Hotel)
class HotelAdmin(ReadOnlyAdmin):
    list_display = ["code", "name", "timezone", "currency"]


@admin.register(models.RoomMonth)
class RoomMonthAdmin(ReadOnlyAdmin):
    list_display = ["room_type", "month", "rate_minor", "capacity"]
    list_select_related = ["room_type"]


@admin.register(models.RoomNight)
class RoomNightAdmin(ReadOnlyAdmin):
    list_display = ["room_type", "night", "taken", "capacity"]
    list_select_related = ["room_type"]
    ordering = ["room_type", "night"]


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

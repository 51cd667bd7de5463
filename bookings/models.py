"""What the travel domain stores: hotels with their rates and nights, reservations, bookings, API keys.

Keeps INV-O12 (a night is never sold more often than the hotel has rooms): the CHECK on RoomNight, whatever the code in
`rooms` believes. A reservation's `holder` is the operation id of the reserve_room step that made it; every change names
it. Times are the database's, money is an integer in minor units with its currency beside it.
"""

from enum import StrEnum
from typing import ClassVar, override

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import UUID7, Now
from rest_framework_api_key import crypto
from rest_framework_api_key import models as api_key_models

from bookings.webhook_tables import WebhookDelivery as WebhookDelivery  # as in ledger.models
from bookings.webhook_tables import WebhookEndpoint as WebhookEndpoint
from bookings.webhook_tables import WebhookSecret as WebhookSecret

NAME_LENGTH = 64
GUEST_LENGTH = 200


class ReservationState(StrEnum):
    """Where a reservation stands.

    held      made by reserve_room, or given back by the undo of secure_room; ends by itself at `expires_at`
    secured   made by secure_room; does not expire
    released  ended by the undo of reserve_room
    expired   ended by the sweep; secure_room may take the nights again if they are still free
    """

    HELD = "held"
    SECURED = "secured"
    RELEASED = "released"
    EXPIRED = "expired"


class WhenHeld(StrEnum):
    """What a booking does that lacks a room only because of holds, which may still be given up.

    fail  is refused at once
    wait  asks again until HOLD_WAIT_SECONDS have passed, then is refused
    """

    FAIL = "fail"
    WAIT = "wait"


class Scope(StrEnum):
    """What an API key may do."""

    READ = "bookings:read"
    WRITE = "bookings:write"
    WEBHOOKS = "webhooks:manage"


def all_scopes() -> list[str]:
    return [str(scope) for scope in Scope]


class Hotel(models.Model):
    """A hotel, its calendar's time zone and the currency of its rates."""

    code = models.CharField(max_length=NAME_LENGTH, unique=True)
    name = models.CharField(max_length=200)
    timezone = models.CharField(max_length=NAME_LENGTH)
    currency = models.CharField(max_length=3)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(currency__regex=r"^[A-Z]{3}$"), name="bookings_hotel_currency_is_iso"
            )
        ]

    @override
    def __str__(self) -> str:
        return self.code


class RoomType(models.Model):
    """A kind of room of one hotel; single rooms are not told apart."""

    hotel = models.ForeignKey(Hotel, on_delete=models.PROTECT, related_name="room_types")
    code = models.CharField(max_length=NAME_LENGTH)
    when_held = models.CharField(
        max_length=8,
        choices=[(w.value, w.value) for w in WhenHeld],
        db_default=WhenHeld.FAIL.value,
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hotel", "code"], name="bookings_roomtype_code_is_unique"
            ),
            models.CheckConstraint(
                condition=Q(when_held__in=[w.value for w in WhenHeld]),
                name="bookings_roomtype_when_held_is_known",
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"{self.hotel_id}/{self.code}"


class RoomMonth(models.Model):
    """Nightly rate and capacity of a room type in one month."""

    room_type = models.ForeignKey(
        RoomType, on_delete=models.PROTECT, related_name="months", db_index=False
    )
    month = models.DateField(help_text="The first day of the month.")
    rate_minor = models.BigIntegerField()
    capacity = models.IntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["room_type", "month"], name="bookings_roommonth_month_is_unique"
            ),
            models.CheckConstraint(
                condition=Q(month__day=1), name="bookings_roommonth_month_starts_on_its_first"
            ),
            models.CheckConstraint(
                condition=Q(rate_minor__gt=0), name="bookings_roommonth_rate_is_positive"
            ),
            models.CheckConstraint(
                condition=Q(capacity__gte=0), name="bookings_roommonth_capacity_is_not_negative"
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"{self.room_type_id} {self.month:%Y-%m}"


class RoomNight(models.Model):
    """How many rooms of a type there are in one night, and how many are taken. Written by `rooms` alone."""

    room_type = models.ForeignKey(
        RoomType, on_delete=models.PROTECT, related_name="nights", db_index=False
    )
    night = models.DateField(
        help_text="The date on which the night begins, in the hotel's calendar."
    )
    capacity = models.IntegerField()
    taken = models.IntegerField(db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["room_type", "night"], name="bookings_roomnight_night_is_unique"
            ),
            models.CheckConstraint(
                condition=Q(taken__gte=0) & Q(taken__lte=F("capacity")),
                name="bookings_roomnight_taken_is_within_capacity",
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"{self.room_type_id} {self.night}: {self.taken}/{self.capacity}"


class Reservation(models.Model):
    """The nights that one booking took. Written by `rooms` alone, each change under its holder and version."""

    holder = models.CharField(max_length=200, unique=True)
    room_type = models.ForeignKey(RoomType, on_delete=models.PROTECT, db_index=False)
    arrival = models.DateField()
    nights = models.IntegerField()
    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in ReservationState])
    expires_at = models.DateTimeField(null=True)
    version = models.IntegerField(db_default=1)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in ReservationState]),
                name="bookings_reservation_state_is_known",
            ),
            models.CheckConstraint(
                condition=Q(state=ReservationState.HELD.value, expires_at__isnull=False)
                | (~Q(state=ReservationState.HELD.value) & Q(expires_at__isnull=True)),
                name="bookings_reservation_expires_only_while_held",
            ),
            models.CheckConstraint(
                condition=Q(nights__gt=0), name="bookings_reservation_nights_are_positive"
            ),
        ]
        indexes = [
            models.Index(
                fields=["expires_at", "id"],
                condition=Q(state=ReservationState.HELD.value),
                name="bookings_reservation_due",
            ),
            # Who keeps a night: asked whenever a stay finds no room.
            models.Index(
                fields=["room_type", "arrival"],
                condition=Q(
                    state__in=[ReservationState.HELD.value, ReservationState.SECURED.value]
                ),
                name="bookings_reservation_living",
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"{self.holder}: {self.state}"


class Booking(models.Model):
    """What a client asked for and what it costs; how far it has come is the job's to say."""

    id = models.UUIDField(primary_key=True, db_default=UUID7(), editable=False)
    tenant = models.ForeignKey(
        "ledger.Tenant", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    job = models.OneToOneField("ledger.Job", on_delete=models.PROTECT, related_name="booking")
    hotel = models.ForeignKey(Hotel, on_delete=models.PROTECT, related_name="+", db_index=False)
    room_type = models.ForeignKey(
        RoomType, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    arrival = models.DateField()
    nights = models.IntegerField()
    guest = models.CharField(max_length=GUEST_LENGTH, blank=True)
    client_reference = models.CharField(max_length=GUEST_LENGTH, blank=True)
    amount_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(amount_minor__gt=0), name="bookings_booking_amount_is_positive"
            ),
            models.CheckConstraint(
                condition=Q(currency__regex=r"^[A-Z]{3}$"), name="bookings_booking_currency_is_iso"
            ),
            models.CheckConstraint(
                condition=Q(nights__gt=0), name="bookings_booking_nights_are_positive"
            ),
        ]
        indexes = [
            # What a list walks, newest first.
            models.Index(fields=["tenant", "id"], name="bookings_booking_of_tenant"),
            models.Index(
                fields=["tenant", "client_reference", "id"],
                condition=~Q(client_reference=""),
                name="bookings_booking_reference",
            ),
        ]

    @override
    def __str__(self) -> str:
        return str(self.id)


class KeyGenerator(crypto.KeyGenerator):
    """Keys that say for which environment they are: one of production that is sent elsewhere is refused, whatever was
    copied into that database.
    """

    @override
    def generate(self) -> tuple[str, str, str]:
        key, prefix, hashed_key = super().generate()
        environment = settings.KEY_ENVIRONMENT
        return f"{environment}_{key}" if environment else key, prefix, hashed_key


class ApiKeys(api_key_models.APIKeyManager):
    key_generator = KeyGenerator()


class ApiKey(api_key_models.AbstractAPIKey):
    """A tenant's key: a prefix to find it by and a hash; the key itself is shown once and never stored."""

    tenant = models.ForeignKey("ledger.Tenant", on_delete=models.PROTECT, related_name="api_keys")
    scopes = models.JSONField(default=all_scopes)
    # Requests in any minute; RATE_PER_MINUTE where there is none of its own.
    rate_per_minute = models.PositiveIntegerField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    # The package's own field asks the process for the time.
    created = models.DateTimeField(db_default=Now(), db_index=True)
    objects: ClassVar[ApiKeys] = ApiKeys()

    class Meta(api_key_models.AbstractAPIKey.Meta):
        verbose_name = "API key"
        verbose_name_plural = "API keys"
        constraints = [
            models.CheckConstraint(
                condition=Q(rate_per_minute__gte=1), name="bookings_apikey_rate_is_positive"
            )
        ]

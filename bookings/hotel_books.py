"""Writes a hotel's data into the books: rates, capacities and nights, as often as one likes with the same result.

A night that is already sold keeps room for what is taken, whatever its new capacity says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.apps import apps
from django.db import connection, transaction

from bookings import hotel_data
from bookings.models import Hotel, RoomMonth, RoomNight, RoomType


@dataclass(frozen=True, slots=True)
class Loaded:
    """What `load` left behind; `shift_days` moves a date of the data to its place in the books."""

    hotel: str
    shift_days: int
    first_arrival: date
    room_types: int
    months: int
    nights: int
    tenants: int

    @property
    def shift(self) -> timedelta:
        return timedelta(days=self.shift_days)


def load() -> Loaded:
    """Load the hotel of `hotel_data`, so that its first arrival lies ahead of the database's today."""
    with transaction.atomic(durable=True):
        hotel, _ = Hotel.objects.update_or_create(
            code=hotel_data.HOTEL,
            defaults={
                "name": hotel_data.HOTEL_NAME,
                "timezone": hotel_data.TIMEZONE,
                "currency": hotel_data.CURRENCY,
            },
        )
        shift = hotel_data.shift_for(_today())
        months = hotel_data.months(shift)
        room_types = _room_types(hotel, months)
        _upsert(_UPSERT_MONTHS, room_types, months)
        _upsert(_UPSERT_NIGHTS, room_types, months)
        return Loaded(
            hotel=hotel.code,
            shift_days=shift.days,
            first_arrival=hotel_data.first_arrival() + shift,
            room_types=len(room_types),
            months=RoomMonth.objects.filter(room_type__hotel=hotel).count(),
            nights=RoomNight.objects.filter(room_type__hotel=hotel).count(),
            tenants=_tenants(hotel_data.tenants()),
        )


def _today() -> date:
    """The date at the hotel, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT (ledger_now() AT TIME ZONE %s)::date", [hotel_data.TIMEZONE])
        today: date = cursor.fetchone()[0]
    return today


def _room_types(hotel: Hotel, months: Sequence[hotel_data.Month]) -> dict[str, int]:
    wanted = [
        RoomType(hotel=hotel, code=code) for code in sorted({month.room_type for month in months})
    ]
    RoomType.objects.bulk_create(wanted, ignore_conflicts=True)
    return dict(RoomType.objects.filter(hotel=hotel).values_list("code", "id"))


def _upsert(statement: str, room_types: dict[str, int], months: Sequence[hotel_data.Month]) -> None:
    columns: dict[str, list[Any]] = {
        "room_types": [room_types[month.room_type] for month in months],
        "months": [month.month for month in months],
        "rates": [month.rate_minor for month in months],
        "capacities": [month.capacity for month in months],
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, columns)


def _tenants(names: Sequence[str]) -> int:
    tenant = apps.get_model("ledger", "Tenant")
    tenant.objects.bulk_create([tenant(name=name) for name in names], ignore_conflicts=True)
    return int(tenant.objects.filter(name__in=names).count())


_UPSERT_MONTHS = """
    INSERT INTO bookings_roommonth (room_type_id, month, rate_minor, capacity)
    SELECT * FROM unnest(%(room_types)s::bigint[], %(months)s::date[], %(rates)s::bigint[], %(capacities)s::int[])
    ON CONFLICT (room_type_id, month)
    DO UPDATE SET rate_minor = excluded.rate_minor, capacity = excluded.capacity
"""

# In the canonical order of `rooms`, so that a load beside running workers waits for them and they for it, in one queue.
_UPSERT_NIGHTS = """
    INSERT INTO bookings_roomnight AS n (room_type_id, night, capacity, taken)
    SELECT m.room_type_id, m.month + day, m.capacity, 0
    FROM unnest(%(room_types)s::bigint[], %(months)s::date[], %(capacities)s::int[])
         AS m (room_type_id, month, capacity)
    JOIN bookings_roomtype t ON t.id = m.room_type_id
    CROSS JOIN LATERAL generate_series(0, (m.month + interval '1 month')::date - m.month - 1) AS day
    ORDER BY t.code COLLATE "C", m.month + day
    ON CONFLICT (room_type_id, night)
    DO UPDATE SET capacity = greatest(excluded.capacity, n.taken)
"""

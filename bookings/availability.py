"""What a client reads before it books: our hotels, and what a stay would cost and find free now.

None of it is a promise: a room is taken by the first step of a trip, under its locks, and the price is the one at the
moment of booking. Calendar dates in the hotel's zone; whether an arrival lies ahead is the database's to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.db import connection

from bookings import prices
from bookings.models import Hotel
from bookings.requests import ValidatedRequest
from ledger.outcomes import Money

ROOM_TYPES_MAX = 200
# The hotel's today and currency, a room type, nights priced and their price, nights there are and rooms free in all.
Row = tuple[date, str, str | None, int, int, int, int]


@dataclass(frozen=True, slots=True)
class HotelView:
    code: str
    name: str
    timezone: str
    currency: str
    room_types: list[str]


@dataclass(frozen=True, slots=True)
class Free:
    """Of one room type: how many rooms are free in every night of a stay, and its price; None: not sold then."""

    room_type: str
    rooms_free: int
    price: Money | None


@dataclass(frozen=True, slots=True)
class Quote:
    price: Money
    rooms_free: int


def hotels(limit: int, after: str = "") -> tuple[list[HotelView], str | None]:
    """A page in order of code, and where the next one begins."""
    rows = Hotel.objects.filter(code__gt=after).order_by("code").prefetch_related("room_types")
    found = [_hotel(row) for row in rows[: limit + 1]]
    return found[:limit], found[limit - 1].code if len(found) > limit else None


def stay(hotel: str, arrival: date, nights: int) -> list[Free] | None:
    """Every room type of a hotel; None for a hotel that is not there. ArrivalOutOfRange."""
    rows = _free({"hotel": hotel, "room_type": None, "arrival": arrival, "nights": nights})
    if not rows:
        return None
    prices.check_arrival(arrival, rows[0][0], "?arrival")
    return [_of(row, nights) for row in rows if row[2] is not None]


def quote(request: ValidatedRequest) -> Quote:
    """Price and rooms of one stay, by the same rules as its booking. RequestRefused."""
    offer = prices.offer(request)
    offer.check(request)
    wanted = {name: getattr(request, name) for name in ("hotel", "room_type", "arrival", "nights")}
    rows = _free(wanted)
    rooms_free = _of(rows[0], request.nights).rooms_free if rows else 0
    return Quote(offer.price, rooms_free)


def _hotel(row: Hotel) -> HotelView:
    room_types = sorted(room_type.code for room_type in row.room_types.all())
    return HotelView(row.code, row.name, row.timezone, row.currency, room_types[:ROOM_TYPES_MAX])


def _free(asked: Mapping[str, Any]) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(_FREE, asked)
        return list(cursor.fetchall())


def _of(row: Row, nights: int) -> Free:
    _, currency, room_type, priced, amount_minor, found, free = row
    is_sold = priced == nights == found
    price = Money(amount_minor, currency) if is_sold else None
    return Free(room_type or "", free if is_sold else 0, price)


_FREE = f"""
    SELECT (ledger_now() AT TIME ZONE h.timezone)::date, h.currency, t.code,
           priced.nights, priced.amount_minor, free.nights, free.rooms
    FROM bookings_hotel h
    LEFT JOIN bookings_roomtype t ON t.hotel_id = h.id
     AND (%(room_type)s::text IS NULL OR t.code = %(room_type)s)
    CROSS JOIN LATERAL (
        SELECT count(*) AS nights, coalesce(sum(m.rate_minor), 0)::bigint AS amount_minor
        FROM generate_series(0, %(nights)s::int - 1) AS day
        JOIN bookings_roommonth m ON m.room_type_id = t.id
         AND m.month = date_trunc('month', (%(arrival)s::date + day)::timestamp)::date
    ) AS priced
    CROSS JOIN LATERAL (
        SELECT count(*) AS nights, coalesce(min(n.capacity - n.taken), 0) AS rooms FROM bookings_roomnight n
        WHERE n.room_type_id = t.id AND n.night >= %(arrival)s::date
          AND n.night < %(arrival)s::date + %(nights)s::int
    ) AS free
    WHERE h.code = %(hotel)s
    ORDER BY t.code LIMIT {ROOM_TYPES_MAX}
"""  # noqa: S608  a constant of this module

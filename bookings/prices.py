"""What a stay costs and whether we offer it at all: one read, in the statement that books it.

The price is the sum over the nights, each at the rate of its own month; calendar dates in the hotel's zone, never
hours. Whether an arrival lies ahead is the database's to say.
"""

from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

from django.db import connection

from bookings import requests
from bookings.requests import ValidatedRequest
from ledger.outcomes import Money


class RequestRefused(Exception):
    """A well-formed request that our books refuse. Names the place in the request and a code."""

    def __init__(self, pointer: str, code: str, detail: str) -> None:
        self.pointer, self.code, self.detail = pointer, code, detail
        super().__init__(f"{pointer}: {detail}")


class NotOffered(RequestRefused):
    """No such hotel or room type, or no rate for one of the nights."""


class ArrivalOutOfRange(RequestRefused):
    """The arrival has passed in the hotel's calendar, or lies beyond the horizon."""


class PriceMismatch(RequestRefused):
    """The client expects another total than ours."""

    def __init__(self, expected: Money, actual: Money) -> None:
        self.expected, self.actual = expected, actual
        super().__init__(
            "/expected_total",
            "price_mismatch",
            f"expected {expected.amount_minor} {expected.currency} in minor units, "
            f"the price is {actual.amount_minor} {actual.currency}",
        )


@dataclass(frozen=True, slots=True)
class Offer:
    """What the books say about a stay; a part that they do not have is None. `subject` is the id of a booking of it."""

    subject: UUID
    hotel_id: int | None
    room_type_id: int | None
    currency: str | None
    today: date | None
    nights_priced: int
    amount_minor: int
    is_on_offer: bool

    @property
    def price(self) -> Money:
        return Money(self.amount_minor, self.currency or "")

    def check(self, request: ValidatedRequest) -> None:
        """Nothing, if this request may be booked at this price; else RequestRefused."""
        self._check_stay(request)
        expected = request.expected_total
        if expected is not None and expected != self.price:
            raise PriceMismatch(expected, self.price)

    def _check_stay(self, request: ValidatedRequest) -> None:
        if self.hotel_id is None or self.today is None:
            raise NotOffered("/hotel", "unknown_hotel", "there is no such hotel")
        if self.room_type_id is None:
            raise NotOffered("/room_type", "unknown_room_type", "the hotel has no such room type")
        check_arrival(request.arrival, self.today)
        if self.nights_priced != request.nights:
            raise NotOffered(
                "/arrival", "no_rate", "this room type is not sold on all of these nights"
            )


def check_arrival(arrival: date, today: date, pointer: str = "/arrival") -> None:
    """Nothing, if a stay may begin then; `today` is the hotel's."""
    days_ahead = (arrival - today).days
    if days_ahead < 0:
        raise ArrivalOutOfRange(pointer, "in_the_past", "the arrival has passed at the hotel")
    if days_ahead > requests.HORIZON_DAYS:
        detail = f"at most {requests.HORIZON_DAYS} days ahead"
        raise ArrivalOutOfRange(pointer, "too_far_ahead", detail)


# The function is in the migration 0008; it answers with one row, the members of Offer.
ARGUMENTS = """%(hotel)s, %(room_type)s, %(arrival)s, %(nights)s, %(expected_minor)s, %(expected_currency)s,
    %(horizon_days)s"""
OFFER = f"SELECT * FROM bookings_offer({ARGUMENTS})"  # noqa: S608  a constant of ours


def offer(request: ValidatedRequest) -> Offer:
    with connection.cursor() as cursor:
        cursor.execute(OFFER, parameters(request))
        return Offer(*cursor.fetchone())


def parameters(request: ValidatedRequest) -> dict[str, Any]:
    """What ARGUMENTS ask of a request."""
    expected = request.expected_total
    return {
        "hotel": request.hotel,
        "room_type": request.room_type,
        "arrival": request.arrival,
        "nights": request.nights,
        "expected_minor": expected.amount_minor if expected else None,
        "expected_currency": expected.currency if expected else None,
        "horizon_days": requests.HORIZON_DAYS,
    }

"""The shape of a request, strictly: each member has one JSON type and one spelling, and an unknown member is an error.

DRF's own fields turn other types into the declared one (`"1_000"` into 1000, `true` into 1), and so would let two
different bodies mean the same booking.
"""

import re
import unicodedata
from collections.abc import Mapping
from datetime import date
from functools import cache
from typing import Any, cast, override

from rest_framework import serializers

from bookings import requests
from bookings.api import card_numbers, credentials
from bookings.models import GUEST_LENGTH, NAME_LENGTH
from ledger.outcomes import Money

REASON_LENGTH = 200  # the column's, of why a job was turned
AMOUNT_MINOR_MAX = 10**12  # a bound of the business, far inside the column's
YEAR_MIN, YEAR_MAX = 2000, 2199  # before any calendar of a hotel is asked
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CURRENCY = re.compile(r"[A-Z]{3}")
NOT_TEXT = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, surrogates, line separators


def is_text(value: str) -> bool:
    if value.isprintable():  # none of them is, and most texts are
        return True
    return not any(unicodedata.category(character) in NOT_TEXT for character in value)


class StrictString(serializers.Field[str, Any, str, Any]):
    """A JSON string of 1 to `length` printable characters, taken as it is."""

    default_error_messages = {
        "type": "must be a string",
        "blank": "must not be empty",
        "length": "must have at most {length} characters",
        "characters": "must not contain control characters",
    }

    def __init__(self, *, length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.length = length

    @override
    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("type")
        if not data.strip():
            self.fail("blank")
        if len(data) > self.length:
            self.fail("length", length=self.length)
        if not is_text(data):
            self.fail("characters")
        return data


class FreeText(StrictString):
    """A text of the client's own, of which we ask only that it is neither a number of a card nor a secret."""

    default_error_messages = {
        "card_number": "must not contain the number of a payment card: send none to us",
        "credential": "must not contain a key, a token or the check code of a card: send none to us",
    }

    @override
    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if card_numbers.is_in(text):
            self.fail("card_number")
        if credentials.is_in(text):
            self.fail("credential")
        return text


class StrictInteger(serializers.Field[int, Any, int, Any]):
    """A JSON integer within bounds; neither true nor 1.0 is one."""

    default_error_messages = {
        "type": "must be an integer",
        "range": "must be between {low} and {high}",
    }

    def __init__(self, *, low: int, high: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.low, self.high = low, high

    @override
    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("type")
        if not self.low <= data <= self.high:
            self.fail("range", low=self.low, high=self.high)
        return int(data)


class StrictDate(serializers.Field[date, Any, str, Any]):
    """YYYY-MM-DD in ASCII digits, a day that exists."""

    default_error_messages = {
        "format": "must be a date as YYYY-MM-DD",
        "range": "must lie in the years {low} to {high}",
    }

    @override
    def to_internal_value(self, data: Any) -> date:
        if not isinstance(data, str) or not _DATE.fullmatch(data):
            self.fail("format")
        try:
            found = date.fromisoformat(data)
        except ValueError:
            self.fail("format")
        if not YEAR_MIN <= found.year <= YEAR_MAX:
            self.fail("range", low=YEAR_MIN, high=YEAR_MAX)
        return found


class StrictCurrency(serializers.Field[str, Any, str, Any]):
    """An ISO 4217 code in capitals; whether it is the hotel's is the price's to say."""

    default_error_messages = {"format": "must be three capital letters (ISO 4217)"}

    @override
    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or not _CURRENCY.fullmatch(data):
            self.fail("format")
        return data


class ClosedSerializer(serializers.Serializer[Any]):
    """An object with exactly the members declared here."""

    @override
    def to_internal_value(self, data: Any) -> Any:
        errors: dict[str, Any] = {}
        if isinstance(data, Mapping):
            unknown = [name for name in data if name not in self.fields]
            errors = {
                name: [serializers.ErrorDetail("is not a member of this object", "unknown_field")]
                for name in unknown
            }
        try:
            found = super().to_internal_value(data)
        except serializers.ValidationError as error:
            known = cast("dict[str, Any]", error.detail)  # a serializer's own errors are by name
            raise serializers.ValidationError(errors | known) from error
        if errors:
            raise serializers.ValidationError(errors)
        return found


class MoneySerializer(ClosedSerializer):
    amount_minor = StrictInteger(low=1, high=AMOUNT_MINOR_MAX)
    currency = StrictCurrency()


class BookingRequest(ClosedSerializer):
    """The body of POST /v1/bookings."""

    hotel = StrictString(length=NAME_LENGTH)
    room_type = StrictString(length=NAME_LENGTH)
    arrival = StrictDate()
    nights = StrictInteger(low=1, high=requests.NIGHTS_MAX)
    guest = FreeText(length=GUEST_LENGTH, required=False)
    client_reference = FreeText(length=GUEST_LENGTH, required=False)
    expected_total = MoneySerializer(required=False)


class StayRequest(ClosedSerializer):
    """The body of POST /v1/quotes."""

    hotel = StrictString(length=NAME_LENGTH)
    room_type = StrictString(length=NAME_LENGTH)
    arrival = StrictDate()
    nights = StrictInteger(low=1, high=requests.NIGHTS_MAX)


class CancelRequest(ClosedSerializer):
    """The body of a cancel, which may be left out."""

    reason = FreeText(length=REASON_LENGTH, required=False)


def stay(body: Any) -> requests.ValidatedRequest:
    """The stay that a quote is asked for."""
    return requests.ValidatedRequest(**members(StayRequest, body))


def cancel_reason(body: Any) -> str:
    found: str = members(CancelRequest, body).get("reason", "")
    return found


def members(shape: type[ClosedSerializer], body: Any) -> dict[str, Any]:
    """The members of an object of this shape; ValidationError naming each that is wrong."""
    return dict(_fields(shape).run_validation(body))


@cache
def _fields(shape: type[ClosedSerializer]) -> ClosedSerializer:
    """One for all requests: it keeps nothing of a body, and DRF would copy every field for a new one."""
    return shape()


def validated(body: Any) -> requests.ValidatedRequest:
    """The meaning of a body; ValidationError naming every member that is wrong."""
    return request_of(members(BookingRequest, body))


def request_of(found: dict[str, Any]) -> requests.ValidatedRequest:
    """What the members of a booking mean."""
    if (total := found.pop("expected_total", None)) is not None:
        found["expected_total"] = Money(**total)
    return requests.ValidatedRequest(**found)

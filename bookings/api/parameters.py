"""The parameters that routes take, each set in one place. What is not named here is a 400."""

from typing import Any, override

from rest_framework import serializers

from bookings import requests
from bookings.api.query import Instant, OneOf, TextInteger
from bookings.api.serializers import ClosedSerializer, StrictDate, StrictString
from bookings.models import GUEST_LENGTH
from ledger.standing import Standing
from ledger.states import ClientState

LIMIT, LIMIT_MAX = 50, 200
CURSOR_LENGTH = 300


class Paged(ClosedSerializer):
    limit = TextInteger(low=1, high=LIMIT_MAX, default=LIMIT)
    cursor = StrictString(length=CURSOR_LENGTH, required=False)


class Made(ClosedSerializer):
    """At or after the one, before the other: periods that meet neither overlap nor leave a gap."""

    created_after = Instant(required=False)
    created_before = Instant(required=False)

    @override
    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        _in_order(attrs, "created_after", "created_before")
        return attrs


class Listed(Paged, Made):
    """GET /v1/bookings. Both ends of the arrivals belong to them."""

    state = OneOf(of=ClientState, required=False)
    # `class` is a word of Python, so it is declared below.
    arrival_from = StrictDate(required=False)
    arrival_to = StrictDate(required=False)
    client_reference = StrictString(length=GUEST_LENGTH, required=False)

    @override
    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), "class": OneOf(of=Standing, required=False)}

    @override
    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        _in_order(attrs, "arrival_from", "arrival_to")
        return super().validate(attrs)


class Stay(ClosedSerializer):
    """GET /v1/hotels/{code}/availability."""

    arrival = StrictDate()
    nights = TextInteger(low=1, high=requests.NIGHTS_MAX)


def _in_order(given: dict[str, Any], first: str, last: str) -> None:
    if first in given and last in given and given[first] > given[last]:
        error = serializers.ErrorDetail(f"lies before {first}", "order")
        raise serializers.ValidationError({last: [error]})

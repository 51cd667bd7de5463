"""A query string, strictly: each parameter is declared, named once, and in its one spelling; 400 names the one that is not.

Read from the bytes that were sent: Django's own reading takes the last of two values, and puts a sign in the place of what
is no UTF-8. A set of parameters is a ClosedSerializer; the kinds of values that only a query string has are fields here.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Any, override
from urllib.parse import parse_qsl

from rest_framework import serializers
from rest_framework.request import Request

from bookings.api import faults, problems
from bookings.api.serializers import YEAR_MAX, YEAR_MIN, ClosedSerializer, members

LENGTH_MAX = 4_096
_INTEGER = re.compile(r"0|[1-9][0-9]{0,8}")
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})"
)


class TextInteger(serializers.Field[int, Any, int, Any]):
    """An integer in ASCII digits, without sign or leading zeros, within bounds."""

    default_error_messages = {"range": "must be an integer between {low} and {high}"}

    def __init__(self, *, low: int, high: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.low, self.high = low, high

    @override
    def to_internal_value(self, data: Any) -> int:
        if not _INTEGER.fullmatch(data) or not self.low <= int(data) <= self.high:
            self.fail("range", low=self.low, high=self.high)
        return int(data)


class Instant(serializers.Field[datetime, Any, str, Any]):
    """A moment as RFC 3339 spells it, with its offset."""

    default_error_messages = {
        "format": "must be a time as 2026-01-31T12:00:00Z (a + is spelled %2B)",
        "range": "must lie in the years {low} to {high}",
    }

    @override
    def to_internal_value(self, data: Any) -> datetime:
        if not _INSTANT.fullmatch(data):
            self.fail("format")
        try:
            found = datetime.fromisoformat(data)
        except ValueError:
            self.fail("format")
        if not YEAR_MIN <= found.year <= YEAR_MAX:
            self.fail("range", low=YEAR_MIN, high=YEAR_MAX)
        return found


class OneOf[T: str](serializers.Field[T, Any, str, Any]):
    """One of the words of an enumeration."""

    default_error_messages = {"choice": "must be one of {known}"}

    def __init__(self, *, of: Iterable[T], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.words = {str(word): word for word in of}

    @override
    def to_internal_value(self, data: Any) -> T:
        if data not in self.words:
            self.fail("choice", known=", ".join(self.words))
        return self.words[data]


def read(request: Request, shape: type[ClosedSerializer]) -> dict[str, Any]:
    """The parameters of a request in their types; `faults.Problem` (400) naming each that is wrong."""
    given: dict[str, str] = {}
    for name, value in _pairs(request.META.get("QUERY_STRING", "")):
        if name in given:
            raise _bad(name, "repeated", "this parameter is named twice")
        given[name] = value
    try:
        return members(shape, given)
    except serializers.ValidationError as error:
        places = [_of_query(place) for place in problems.places_of(error.detail)]
        raise faults.Problem(
            HTTPStatus.BAD_REQUEST, "invalid", "see errors", places[: faults.FAULTS_MAX]
        ) from None


def _of_query(place: faults.Fault) -> faults.Fault:
    return {**place, "pointer": f"?{place['pointer'][1:]}"}


def _pairs(text: str) -> list[tuple[str, str]]:
    sent = text.encode("latin-1", "replace")  # as WSGI hands bytes over
    if len(sent) > LENGTH_MAX:
        detail = f"a query string has at most {LENGTH_MAX} bytes"
        raise faults.Problem(HTTPStatus.REQUEST_URI_TOO_LONG, "uri-too-long", detail)
    pairs = parse_qsl(sent, keep_blank_values=True)
    try:
        return [(name.decode(), value.decode()) for name, value in pairs]
    except UnicodeDecodeError:
        raise _bad("", "encoding", "the query string is not UTF-8") from None


def _bad(name: str, code: str, detail: str) -> faults.Problem:
    return faults.invalid(f"?{faults.escape(name)}", code, detail)

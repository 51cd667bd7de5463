"""JSON as it is meant to be: one meaning per body, nothing that a later layer would choke on or read another way.

Refused, each with its place named: bytes that are not UTF-8, too deep nesting (before any recursive reader sees it), a
member named twice, NaN and infinities in any spelling, integers outside 64 bits, NUL and lone surrogates anywhere.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import IO, Any, ClassVar, override

from django.http import UnreadablePostError
from rest_framework import exceptions
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from bookings.api import faults

DEPTH_MAX = 32
BYTES_MAX = 256 * 1024
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
INTEGER_LITERAL_MAX = 20  # characters: a sign and the 19 digits of 2**63
FLOAT_MAX = float("inf")

_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}
# Strings whole, so that a bracket inside one does not count; an open one, to its end, cannot be JSON and is left to the
# reader. Possessive, and never without a match once begun: no character is looked at twice, whatever a client sends.
_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Bad:
    """In the place of a value that JSON's grammar allows and we do not."""

    code: str
    detail: str


class Members(dict[str, Any]):
    """An object that remembers the first name that came twice."""

    twice: str | None = None

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> "Members":
        members = cls(pairs)
        if len(members) != len(pairs):
            counted = Counter(name for name, _ in pairs)
            members.twice = next(name for name, times in counted.items() if times > 1)
        return members


class StrictJsonParser(BaseParser):
    """application/json only, UTF-8 only."""

    media_type = "application/json"
    charsets: ClassVar = {"", "utf-8", "utf8"}
    bytes_max = BYTES_MAX

    @override
    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            body = stream.read(self.bytes_max + 1)
        except UnreadablePostError:
            detail = "the body did not arrive in time"
            raise faults.Problem(HTTPStatus.REQUEST_TIMEOUT, "request-timeout", detail) from None
        if len(body) > self.bytes_max:
            raise too_large(self.bytes_max)
        return read(body)


def require_json(request: Request, bytes_max: int = BYTES_MAX) -> None:
    """415 unless the body says that it is plain JSON; 411 and 413 for one of unknown or too great length."""
    media_type, _, parameters = request.META.get("CONTENT_TYPE", "").partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    encoding = request.META.get("HTTP_CONTENT_ENCODING", "identity").strip().lower()
    if media_type.strip().lower() != StrictJsonParser.media_type or encoding != "identity":
        raise exceptions.UnsupportedMediaType("", "send application/json, not compressed")
    if charset not in StrictJsonParser.charsets:
        raise exceptions.UnsupportedMediaType("", "send application/json in UTF-8")
    if "HTTP_TRANSFER_ENCODING" in request.META:  # Django reads nothing of such a body
        raise faults.Problem(HTTPStatus.LENGTH_REQUIRED, "length-required", "send a Content-Length")
    length = request.META.get("CONTENT_LENGTH") or "0"
    if length.isdecimal() and int(length[:20]) > bytes_max:
        raise too_large(bytes_max)


def too_large(bytes_max: int) -> faults.Problem:
    return faults.Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", f"at most {bytes_max} bytes"
    )


def read(body: bytes) -> Any:
    """The value of a body; `faults.Problem` (400) naming the first place that is wrong."""
    text = _decode(body)
    _check_depth(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=Members.of,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=lambda name: Bad("not_a_number", f"{name} is not JSON"),
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}: {error.msg}"
        raise _bad("", "syntax", place) from error
    for pointer, bad in _faults(value, ""):
        raise _bad(pointer, bad.code, bad.detail)
    return value


def _decode(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad("", "encoding", f"not UTF-8 at byte {error.start}") from error


def _check_depth(text: str) -> None:
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += _STEPS.get(found.group()[0], 0)
        if depth > DEPTH_MAX:
            raise _bad("", "too_deep", f"more than {DEPTH_MAX} levels at character {found.start()}")


def _integer(literal: str) -> int | Bad:
    if (
        len(literal) <= INTEGER_LITERAL_MAX
        and INTEGER_MIN <= (value := int(literal)) <= INTEGER_MAX
    ):
        return value
    return Bad("integer_range", "outside the range of a 64-bit integer")


def _float(literal: str) -> float | Bad:
    value = float(literal)
    if abs(value) == FLOAT_MAX:
        return Bad("number_range", "outside the range of a number")
    return value


def _faults(value: Any, pointer: str) -> Iterator[tuple[str, Bad]]:
    """Every bad place in a parsed value. Its depth is bounded, so recursion is."""
    match value:
        case Bad():
            yield pointer, value
        case str():
            yield from ((pointer, bad) for bad in _text_faults(value))
        case Members():
            if value.twice is not None:
                yield _under(pointer, value.twice), Bad("duplicate", "this member is named twice")
            for name, member in value.items():
                yield from ((_under(pointer, name), bad) for bad in _text_faults(name))
                yield from _faults(member, _under(pointer, name))
        case list():
            for index, item in enumerate(value):
                yield from _faults(item, f"{pointer}/{index}")
        case _:  # a number within bounds, true, false or null
            return


def _text_faults(text: str) -> Iterator[Bad]:
    if "\0" in text:
        yield Bad("nul", "contains a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        yield Bad("surrogate", "contains a lone surrogate")


def _under(pointer: str, name: str) -> str:
    return f"{pointer}/{faults.escape(name)}"


def _bad(pointer: str, code: str, detail: str) -> faults.Problem:
    places = [faults.fault(pointer, code, detail)]
    return faults.Problem(HTTPStatus.BAD_REQUEST, "bad_json", detail, places)

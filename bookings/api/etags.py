"""Entity tags (RFC 9110): a strong one is a hash of the representation, and what a request says of them, strictly read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from rest_framework.request import Request

from bookings.api import faults
from ledger import canonical

DIGITS = 32
LENGTH_MAX = 4_096
_TAG = r'(?:W/)?"[\x21\x23-\x7e]*"'
_LIST = re.compile(rf"{_TAG}(?:[ \t]*,[ \t]*{_TAG})*")


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags that a client names; `is_any`: it named `*`."""

    named: frozenset[str]
    is_any: bool = False

    def match(self, tag: str) -> bool:
        """As If-Match compares: a weak tag matches nothing."""
        return self.is_any or tag in self.named

    def match_weakly(self, tag: str) -> bool:
        """As If-None-Match compares."""
        return self.is_any or tag in {name.removeprefix("W/") for name in self.named}


def of(body: Mapping[str, Any]) -> str:
    """The tag of a representation."""
    return f'"{canonical.fingerprint(body).hex()[:DIGITS]}"'


def known(request: Request) -> Tags | None:
    """What If-None-Match names."""
    return _tags(request, "If-None-Match", "HTTP_IF_NONE_MATCH")


def required(request: Request) -> Tags:
    """What If-Match names; 428 without one."""
    tags = _tags(request, "If-Match", "HTTP_IF_MATCH")
    if tags is None:
        detail = "send If-Match with the ETag of the booking as you saw it"
        raise faults.Problem(HTTPStatus.PRECONDITION_REQUIRED, "precondition-required", detail)
    return tags


def _tags(request: Request, name: str, key: str) -> Tags | None:
    given = request.META.get(key)
    if given is None:
        return None
    given = given.strip(" \t")
    if given == "*":
        return Tags(frozenset(), is_any=True)
    if len(given) > LENGTH_MAX or not _LIST.fullmatch(given):
        raise faults.invalid(name, "etag", "entity tags in double quotes, or *")
    return Tags(frozenset(re.findall(_TAG, given)))

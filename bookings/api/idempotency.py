"""The Idempotency-Key header: one documented rule, checked before any query.

1 to 255 visible ASCII characters, either as a structured-field string (`"8e03..."`, RFC 8941) or bare; both spellings
are the same key. A bare key has no comma: servers join two header lines with one, and two keys are no key.
"""

import re
from typing import cast

import http_sf
from rest_framework.request import Request

from bookings.api import faults

HEADER = "Idempotency-Key"
VISIBLE = re.compile(r"[\x21-\x7e]{1,255}")


def key_of(request: Request) -> str:
    """The key of a request, unquoted; `faults.Problem` (400) where there is none or it breaks the rule."""
    given = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if given is None:
        raise faults.invalid(HEADER, "key_missing", f"send the header {HEADER}")
    key = unquote(given.strip(" \t"))
    if key is None or not VISIBLE.fullmatch(key):
        raise faults.invalid(
            HEADER,
            "key_malformed",
            "one key of 1 to 255 visible ASCII characters, bare or in double quotes",
        )
    return key


def unquote(given: str) -> str | None:
    """The string that a header value stands for; None where it stands for no single string."""
    if not given.startswith('"'):
        return None if "," in given else given
    try:
        item = http_sf.parse(given.encode("ascii"), tltype="item")
    except (http_sf.StructuredFieldError, UnicodeEncodeError):
        return None
    value, parameters = cast("tuple[object, dict[str, object]]", item)
    return value if isinstance(value, str) and not parameters else None

"""Where a page begins, signed. A cursor is good for the tenant, the route and the filters that it was made for alone."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.core import signing
from rest_framework.request import Request

from bookings.api import auth, faults

OWN = ("cursor", "limit")  # of the page; all others are filters


def begin(request: Request, given: Mapping[str, Any]) -> str:
    """Where the page begins that is asked for, empty for the first; `faults.Problem` (400) for a cursor of another list."""
    if "cursor" not in given:
        return ""
    try:
        return str(_signer(request, given).unsign_object(given["cursor"]))
    except (signing.BadSignature, ValueError):
        detail = "is not a cursor of this list with these filters"
        raise faults.invalid("?cursor", "cursor", detail) from None


def next_link(request: Request, given: Mapping[str, Any], last: object) -> str | None:
    """The address of the page that begins after `last`: the same parameters, and where it begins."""
    if last is None:
        return None
    cursor = _signer(request, given).sign_object(str(last))
    parameters = {**_filters(request), "limit": given["limit"], "cursor": cursor}
    return f"{request.path}?{urlencode(parameters)}"


def _signer(request: Request, given: Mapping[str, Any]) -> signing.Signer:
    filters = urlencode(
        sorted((name, str(value)) for name, value in given.items() if name not in OWN)
    )
    bound = ("amends.cursor", str(auth.tenant_of(request).id), request.path, filters)
    return signing.Signer(salt="\n".join(bound), sep=".")


def _filters(request: Request) -> dict[str, str]:
    return {name: str(value) for name, value in request.query_params.items() if name not in OWN}

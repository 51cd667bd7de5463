"""The request's id: the client's own where it sends one, else made here; on every answer and on every log line.

`traceparent` (W3C) is taken for the logs too: its trace id, and nothing else of it. And who sees the rows of all tenants:
staff who are logged in, on their own pages, and no request of the API whatever session comes with it.
"""

import re
import uuid
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import unquote_plus

from django.contrib import admin
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse

from ledger import telemetry, tenancy

HEADER = "X-Request-ID"
_ID = re.compile(r"[\x21-\x7e]{1,128}")
_TRACE = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)
View = Callable[[HttpRequest], HttpResponseBase]


def request_ids(get_response: View) -> View:
    """The outermost middleware, so that the answers of all others carry the id as well, and keep the rules of HTTP."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        given = request.META.get("HTTP_X_REQUEST_ID", "")
        request_id = given if _ID.fullmatch(given) else str(uuid.uuid4())
        with telemetry.bound(request_id=request_id, **_trace(request)):
            response = get_response(request)
        response[HEADER] = request_id
        return _without_body(request, response)

    return middleware


def _refuse_zeros(request: HttpRequest) -> None:
    """Pages ask the database for what stands in their address, and it takes no NUL as text."""
    if "\0" in request.path_info + unquote_plus(request.META.get("QUERY_STRING", "")):
        raise BadRequest("a NUL in the address of a page")


def staff_see_everyone(get_response: View) -> View:
    """After the session is known; around the rendering of pages too."""
    pages = reverse("admin:index")

    def middleware(request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(pages) or not admin.site.has_permission(request):
            return get_response(request)
        _refuse_zeros(request)
        with tenancy.everyone():
            return get_response(request)

    return middleware


def _without_body(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """A 304 states no length, as it is not that of a 200; what answers HEAD keeps its length and has no body (RFC 9110)."""
    if response.status_code == HTTPStatus.NOT_MODIFIED:
        del response["Content-Length"]
    elif request.method == "HEAD" and isinstance(response, HttpResponse):
        response.content = b""
    return response


def _trace(request: HttpRequest) -> dict[str, str]:
    found = _TRACE.fullmatch(request.META.get("HTTP_TRACEPARENT", ""))
    return {"trace_id": found[1]} if found else {}

"""Every error of the API as a problem document (RFC 9457): the one place where domain errors get a status.

A document never shows a value that the client did not send, another tenant's data or a stack trace; `instance` names the
request, by the id under which it is logged. A client's mistake is never a 5xx, a database that is away is a 503.
"""

import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, override
from urllib.parse import quote

from django.core.exceptions import RequestDataTooBig
from django.db import Error
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from drf_standardized_errors import formatter, handler
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.settings import api_settings

from bookings import prices
from bookings.api import faults
from bookings.api.faults import Fault, Problem
from ledger import outcomes, sql, telemetry

CONTENT_TYPE = "application/problem+json"
TYPE = "urn:amends:problem:"
REQUEST = "urn:amends:request:"
RETRY_AFTER_SECONDS = 5
TITLES = {
    "bad_json": "The body cannot be read as JSON",
    "conflict": "The idempotency key is known with another request",
    "gone": "The booking of this idempotency key is past its retention",
    "https-required": "The request came in clear",
    "invalid": "The request is not valid",
    "not-cancellable": "The booking can no longer be cancelled",
    "quota-exceeded": "A limit is reached",
    "refused": "The request cannot be booked",
    "stale": "The booking has changed",
    "too-many": "There is more than one answer can hold",
    "unavailable": "The service cannot answer now",
}
exception_handler = handler.exception_handler  # named in settings.REST_FRAMEWORK


class ProblemHandler(handler.ExceptionHandler):
    """Turns whatever left a view into an API exception, and that into a response."""

    @override
    def convert_known_exceptions(self, exc: Exception) -> Exception:
        return from_domain(super().convert_known_exceptions(exc))

    @override
    def should_not_handle(self, exc: Exception) -> bool:
        return False  # the same answer whatever DEBUG says

    @override
    def get_response(self, exc: exceptions.APIException, data: dict[str, Any]) -> Response:
        response = super().get_response(exc, data)
        response.content_type = CONTENT_TYPE
        return response

    @override
    def report_exception(self, exc: exceptions.APIException, response: Response) -> None:
        super().report_exception(exc, response)
        if exc.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            telemetry.emit(
                "request.failed",
                level="error",
                request_id=_request_id(),
                status=exc.status_code,
                error_class=type(self.exc).__name__,
            )


class ProblemFormatter(formatter.ExceptionFormatter):
    """Turns an API exception into the members of a problem document."""

    @override
    def run(self) -> dict[str, Any]:
        return of(self.exc)


def of(exc: exceptions.APIException) -> dict[str, Any]:
    """The document of one exception of the API."""
    status = HTTPStatus(exc.status_code)
    if isinstance(exc, Problem):
        return document(status, exc.kind, str(exc.detail), exc.faults) | exc.members
    if isinstance(exc, exceptions.ValidationError):
        places = itertools.islice(places_of(exc.detail), faults.FAULTS_MAX)
        return document(status, "invalid", "see errors", list(places))
    return document(status, _kind(status), str(exc.detail))


def from_domain(exc: Exception) -> Exception:
    """The API's exception for an error of the domain; any other is returned as it is."""
    match exc:
        case prices.ArrivalOutOfRange():
            return faults.invalid(exc.pointer, exc.code, exc.detail)
        case prices.RequestRefused():
            places = [faults.fault(exc.pointer, exc.code, exc.detail)]
            return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "refused", exc.detail, places)
        case outcomes.SubmissionConflict():
            detail = "the key was used for another request, which differs in the places named"
            places = [
                faults.fault(pointer, "differs", "differs from the first request")
                for pointer in exc.pointers[: faults.FAULTS_MAX]
            ]
            return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "conflict", detail, places)
        case outcomes.SubmissionGone():
            return Problem(HTTPStatus.GONE, "gone", "use a new key for a new booking")
        case Error() if sql.passes(exc):
            if sql.trouble(exc) is sql.Trouble.RECONNECT:
                sql.replace_connection()  # one to a server that is read-only now still answers
            return Problem(
                HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "nothing was lost; the same request may be sent again",
                retry_after=RETRY_AFTER_SECONDS,
            )  # fmt: skip
        case _:
            return exc


def document(
    status: HTTPStatus, kind: str, detail: str, places: Sequence[Fault] = ()
) -> dict[str, Any]:
    """One problem document."""
    found: dict[str, Any] = {
        "type": TYPE + kind,
        "title": TITLES.get(kind, status.phrase),
        "status": int(status),
        "detail": detail,
        "instance": f"{REQUEST}{quote(_request_id(), safe='')}",
    }
    if places:
        found["errors"] = list(places)
    return found


def places_of(detail: Any, pointer: str = "") -> Iterator[Fault]:
    """DRF's tree of validation errors, leaf by leaf, under JSON pointers (RFC 6901)."""
    if isinstance(detail, Mapping):
        for name, member in detail.items():
            is_whole = name == api_settings.NON_FIELD_ERRORS_KEY
            yield from places_of(
                member, pointer if is_whole else f"{pointer}/{faults.escape(str(name))}"
            )
    elif isinstance(detail, list):
        for item in detail:
            yield from places_of(item, pointer)
    else:
        yield faults.fault(pointer, str(getattr(detail, "code", "invalid")), str(detail))


def _request_id() -> str:
    return str(telemetry.context().get("request_id") or uuid.uuid4())


def _kind(status: HTTPStatus) -> str:
    return status.name.lower().replace("_", "-")


# --- Outside of DRF: named in config.urls ----------------------------------------------------------------------------


def answer(
    status: HTTPStatus,
    kind: str = "",
    detail: str = "",
    *,
    headers: Mapping[str, str] | None = None,
) -> JsonResponse:
    """A problem document as a response."""
    found = document(status, kind or _kind(status), detail or status.description or status.phrase)
    return JsonResponse(found, status=status, content_type=CONTENT_TYPE, headers=headers)


def handler400(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    is_too_big = isinstance(exception, RequestDataTooBig)
    return answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE if is_too_big else HTTPStatus.BAD_REQUEST)


def handler403(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return answer(HTTPStatus.FORBIDDEN)


def handler404(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    return answer(HTTPStatus.NOT_FOUND)


def handler500(request: HttpRequest) -> HttpResponseBase:
    return answer(HTTPStatus.INTERNAL_SERVER_ERROR)

"""Every operation of the API as its clients are told of it: what is sent, and which answers there are.

Keyed by path and method, beside the views and not in them: scopes, parameters and prose are read from the view itself, so
that nothing is said twice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drf_spectacular.utils import OpenApiParameter

from bookings.api import answers, bulk, serializers, shapes, webhook_shapes

Shape = type[Any] | None
Schema = dict[str, Any]

_TAG = r'(W/)?"[\x21\x23-\x7e]*"'
_TAGS = {"type": "string", "pattern": rf"^(\*|{_TAG}([ \t]*,[ \t]*{_TAG})*)$"}
_KEY = {
    "type": "string",
    "pattern": r'^([!#-+\--~][!-+\--~]{0,254}|"([!#-\[\]-~]|\\["\\]){1,255}")$',
}
_ID = {"type": "string", "format": "uuid"}
_TEXT = {"type": "string"}
_SECONDS = {"type": "integer", "minimum": 1}


def _sent(name: str, schema: Schema, detail: str, *, required: bool = False) -> OpenApiParameter:
    return OpenApiParameter(name, schema, "header", required=required, description=detail)


def _path(name: str, schema: Schema, detail: str) -> OpenApiParameter:
    return OpenApiParameter(name, schema, "path", required=True, description=detail)


def _given(
    name: str, schema: Schema, statuses: list[int], detail: str, *, required: bool = True
) -> OpenApiParameter:
    return OpenApiParameter(
        name, schema, "header", required=required, description=detail, response=statuses
    )


KEY = _sent(
    "Idempotency-Key", _KEY, "Yours, for this booking: the same key again is the same booking. Bare or quoted.",
    required=True,
)  # fmt: skip
IF_MATCH = _sent("If-Match", _TAGS, "The ETag of the booking as you saw it, or `*`.", required=True)
KNOWN = _sent(
    "If-None-Match", _TAGS, "What you know: 304 while it is so. With `Prefer`, wait for another."
)
PREFER = _sent(
    "Prefer",
    _TEXT,
    "`wait=N`: answer when there is news, at the latest after N seconds (30 at most).",
)
BOOKING = _path("booking_id", _ID, "A booking of yours.")
ENDPOINT = _path("endpoint_id", _ID, "A webhook endpoint of yours.")
HOTEL = _path("code", _TEXT, "The code of a hotel.")

# What each status means here, whatever the operation.
MEANINGS: Mapping[int, str] = {
    200: "As asked.",
    201: "Made.",
    202: "Accepted. It is worked on from now on.",
    204: "Done; there is nothing to show.",
    304: "It is as you know it.",
    400: "The request is not valid; `errors` names the places.",
    401: "There is no valid key.",
    403: "The key lacks the scope, or was sent without TLS.",
    404: "There is none of yours.",
    406: "`Accept` leaves no JSON.",
    408: "The request did not arrive in time.",
    409: "It cannot be done as things stand.",
    410: "What this key made is past its retention. Use a new key.",
    411: "Send a Content-Length.",
    412: "The booking is not as you saw it.",
    413: "The body is too large.",
    414: "The query string is too long.",
    415: "The body is not plain JSON in UTF-8.",
    422: "It is understood, and refused; `errors` names why.",
    428: "Send If-Match.",
    429: "A limit is reached.",
    431: "The headers are too many or too large.",
    503: "Not now. Nothing was lost, the same request may be sent again.",
}
PROBLEMS: Mapping[int, type[Any]] = {
    409: answers.ProblemOfBooking,
    412: answers.ProblemOfBooking,
    429: answers.ProblemOfRate,
}
ALWAYS = (400, 401, 403, 406, 408, 414, 429, 431, 503)
WITH_BODY = (411, 413, 415)


@dataclass(frozen=True)
class Operation:
    """`answers` when all is well, by status; `refuses` is what there is beside what every operation may answer."""

    name: str
    tag: str
    answers: Mapping[int, Shape]
    asks: Shape = None
    takes: tuple[OpenApiParameter, ...] = ()
    gives: tuple[OpenApiParameter, ...] = ()
    refuses: tuple[int, ...] = ()


TAG_OF_BOOKING = _given("ETag", _TEXT, [200, 202, 304], "Names the booking as it is now.")
ACCEPTED = (
    TAG_OF_BOOKING,
    _given("Location", _TEXT, [202], "Where the booking is."),
    _given("Retry-After", _SECONDS, [202], "When to look."),
    _given("Idempotent-Replayed", _TEXT, [202], "`true`: the key was known.", required=False),
)
WAITED = _given("Preference-Applied", _TEXT, [200, 304], "The wait was granted.", required=False)
MADE = _given("Location", _TEXT, [201], "Where it is.")

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("/v1/bookings", "GET"): Operation("list_bookings", "bookings", {200: shapes.BookingPage}),
    ("/v1/bookings", "POST"): Operation(
        "create_booking", "bookings", {202: shapes.Booking}, serializers.BookingRequest,
        takes=(KEY,), gives=ACCEPTED, refuses=(410, 422),
    ),
    ("/v1/bookings/bulk", "POST"): Operation(
        "create_bookings", "bookings", {200: answers.BulkAnswer}, bulk.BulkRequest,
    ),
    ("/v1/bookings/{booking_id}", "GET"): Operation(
        "read_booking", "bookings", {200: shapes.Booking, 304: None},
        takes=(BOOKING, KNOWN, PREFER), gives=(TAG_OF_BOOKING, WAITED),
    ),
    ("/v1/bookings/{booking_id}/cancel", "POST"): Operation(
        "cancel_booking", "bookings", {202: shapes.Booking}, serializers.CancelRequest,
        takes=(BOOKING, IF_MATCH), gives=(TAG_OF_BOOKING,), refuses=(409, 412, 428),
    ),
    ("/v1/bookings/{booking_id}/journal", "GET"): Operation(
        "read_journal", "bookings", {200: shapes.Journal}, takes=(BOOKING,),
    ),
    ("/v1/bookings/{booking_id}/operations", "GET"): Operation(
        "list_operations", "bookings", {200: shapes.Operations}, takes=(BOOKING,),
    ),
    ("/v1/report", "GET"): Operation("read_report", "report", {200: shapes.Report}, refuses=(422,)),
    ("/v1/hotels", "GET"): Operation("list_hotels", "catalogue", {200: shapes.HotelPage}),
    ("/v1/hotels/{code}/availability", "GET"): Operation(
        "read_availability", "catalogue", {200: shapes.Availability}, takes=(HOTEL,),
    ),
    ("/v1/quotes", "POST"): Operation(
        "quote_stay", "catalogue", {200: shapes.Quote}, serializers.StayRequest, refuses=(422,),
    ),
    ("/v1/webhooks", "GET"): Operation("list_webhooks", "webhooks", {200: answers.Endpoints}),
    ("/v1/webhooks", "POST"): Operation(
        "create_webhook", "webhooks", {201: answers.EndpointWithSecret}, webhook_shapes.EndpointRequest,
        gives=(MADE,), refuses=(409,),
    ),
    ("/v1/webhooks/{endpoint_id}", "GET"): Operation(
        "read_webhook", "webhooks", {200: answers.Endpoint}, takes=(ENDPOINT,),
    ),
    ("/v1/webhooks/{endpoint_id}", "DELETE"): Operation(
        "end_webhook", "webhooks", {204: None}, takes=(ENDPOINT,),
    ),
    ("/v1/webhooks/{endpoint_id}/secret", "POST"): Operation(
        "renew_secret", "webhooks", {200: answers.EndpointWithSecret}, takes=(ENDPOINT,), refuses=(409,),
    ),
    ("/v1/webhooks/{endpoint_id}/deliveries", "GET"): Operation(
        "list_deliveries", "webhooks", {200: answers.DeliveryPage}, takes=(ENDPOINT,),
    ),
}  # fmt: skip


def errors(operation: Operation, path: str) -> list[int]:
    """The statuses of problem documents that it may answer with."""
    found = {*ALWAYS, *operation.refuses}
    if operation.asks is not None:
        found.update(WITH_BODY)
    if "{" in path:
        found.add(404)
    return sorted(found)


def gives(operation: Operation) -> Iterator[OpenApiParameter]:
    """The headers of its answers."""
    yield from operation.gives
    good = list(operation.answers)
    yield _given("RateLimit", _TEXT, good, "What is left of your rate, and when all of it is.")
    yield _given("RateLimit-Policy", _TEXT, good, "Your rate.")
    yield _given(
        "X-Request-ID",
        _TEXT,
        [*good, *ALWAYS],
        "What the request is logged under: yours, or made here.",
    )
    yield _given("Retry-After", _SECONDS, [429, 503], "When to come again, in seconds.")
    yield _given("WWW-Authenticate", _TEXT, [401], "How to name a key.")

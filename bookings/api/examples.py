"""The examples in the schema. A test sends every request among them, and holds every answer against its shape."""

from typing import Any

from drf_spectacular.utils import OpenApiExample

_PROBLEM = "application/problem+json"
_ID = "019a2b7c-5d1e-7c3a-9f40-2f6f1c0d8e11"
_HOOK = "019a2b7c-6aa0-7e55-8d21-93b1a4c7f022"
_REQUEST = "urn:amends:request:6f1e0c9a-50b0-4a6b-b0a5-51f7b1cf7a11"
HOST = "https://hooks.example.com"
ARRIVAL = "2027-03-01"
STAY = {"hotel": "RESORT", "room_type": "A", "arrival": ARRIVAL, "nights": 2}
_PRICE = {"amount_minor": 20_000, "currency": "EUR"}
_OWN = f"/v1/bookings/{_ID}"
_BOOKING = {
    "id": _ID,
    "state": "in_progress",
    "class": "in_progress",
    "outcome_known": True,
    "version": 0,
    **STAY,
    "guest": "Ada Lovelace",
    "client_reference": "trip-17",
    "price": _PRICE,
    "created_at": "2026-11-30T12:00:00.000000Z",
    "links": {"self": _OWN, "journal": f"{_OWN}/journal", "operations": f"{_OWN}/operations"},
}
_ENDPOINT = {
    "id": _HOOK,
    "url": f"{HOST}/amends",
    "enabled": True,
    "disabled_at": None,
    "disabled_reason": None,
    "failures_in_a_row": 0,
    "succeeded_at": None,
    "created_at": "2026-11-30T12:00:00.000000Z",
    "links": {"self": f"/v1/webhooks/{_HOOK}", "deliveries": f"/v1/webhooks/{_HOOK}/deliveries"},
}
_FULL = {
    **STAY,
    "guest": "Ada Lovelace",
    "client_reference": "trip-17",
    "expected_total": _PRICE,
}


def _sent(name: str, value: Any) -> OpenApiExample:
    return OpenApiExample(name, value, request_only=True)


def _heard(name: str, status: int, value: Any) -> OpenApiExample:
    return OpenApiExample(name, value, response_only=True, status_codes=[str(status)])


def _problem(name: str, status: int, kind: str, **members: Any) -> OpenApiExample:
    value = {
        "type": f"urn:amends:problem:{kind}",
        "status": status,
        "instance": _REQUEST,
        **members,
    }
    return OpenApiExample(
        name, value, response_only=True, status_codes=[str(status)], media_type=_PROBLEM
    )


EXAMPLES: dict[str, list[OpenApiExample]] = {
    "create_booking": [
        _sent("a stay", STAY),
        _sent("with all there is", _FULL),
        _heard("accepted", 202, _BOOKING),
        _problem(
            "another request", 422, "conflict",
            title="The idempotency key is known with another request",
            detail="the key was used for another request, which differs in the places named",
            errors=[{"pointer": "/nights", "code": "differs", "detail": "differs from the first request"}],
        ),
    ],
    "create_bookings": [_sent("two", {"bookings": [
        {"idempotency_key": "trip-17-a", **STAY}, {"idempotency_key": "trip-17-b", **STAY},
    ]})],
    "read_booking": [_heard("confirmed", 200, _BOOKING | {"state": "confirmed", "class": "confirmed", "version": 9})],
    "cancel_booking": [
        _sent("with a reason", {"reason": "plans have changed"}),
        _heard("goes back", 202, {**_BOOKING, "state": "compensating", "version": 4}),
        _problem(
            "too late", 409, "not-cancellable", title="The booking can no longer be cancelled",
            detail="it has ended: confirmed", current={"state": "confirmed", "version": 9, "etag": '"0f3a"'},
        ),
    ],
    "quote_stay": [_sent("a stay", STAY), _heard("a price", 200, {**STAY, "price": _PRICE, "rooms_free": 3})],
    "create_webhook": [
        _sent("an endpoint", {"url": f"{HOST}/amends"}),
        _heard("made", 201, {**_ENDPOINT, "secret": "whsec_bm90LWEtc2VjcmV0LW9ubHktYW4tZXhhbXBsZQ=="}),
    ],
    "read_webhook": [_heard("enabled", 200, _ENDPOINT)],
}  # fmt: skip


def of(name: str) -> list[OpenApiExample]:
    """The examples of one operation."""
    return EXAMPLES.get(name, [])

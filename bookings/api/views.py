"""The two routes of version 1: ask for a booking, look at one. They parse, call one function and render."""

import uuid
from typing import Any, ClassVar, override

from django.http import Http404
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from bookings import selectors, submission
from bookings.api import auth, idempotency, parsers, serializers
from bookings.models import Scope
from bookings.selectors import BookingView


class Resource(APIView):
    """Answers belong to one tenant: nothing between us and the client may keep them."""

    scopes: ClassVar[dict[str, str]] = {}

    @override
    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        found = super().finalize_response(request, response, *args, **kwargs)
        found["Cache-Control"] = "no-store"
        return found


class Bookings(Resource):
    http_method_names = ["post"]
    scopes = {"POST": Scope.WRITE.value}

    def post(self, request: Request) -> Response:
        """Accept a booking once: 202 and where to look; the same key again, the same booking."""
        key = idempotency.key_of(request)
        parsers.require_json(request)
        wanted = serializers.validated(request.data)
        booked = submission.book(auth.tenant_of(request), key, wanted)
        look = selectors.accepted if booked.created else selectors.current
        body = representation(look(booked.booking))
        headers = {"Location": body["links"]["self"], "Retry-After": "1"}
        if not booked.created:
            headers["Idempotent-Replayed"] = "true"
        return Response(body, status=status.HTTP_202_ACCEPTED, headers=headers)


class OneBooking(Resource):
    http_method_names = ["get", "head"]
    scopes = {"GET": Scope.READ.value, "HEAD": Scope.READ.value}

    def get(self, request: Request, booking_id: str) -> Response:
        """One booking of the caller's. Unknown, another tenant's and nonsense are the same 404."""
        found = _parse(booking_id)
        booking = selectors.booking(auth.tenant_of(request).id, found) if found else None
        if booking is None:
            raise Http404
        return Response(representation(booking))


def representation(booking: BookingView) -> dict[str, Any]:
    """A booking as its tenant sees it: no job id, no provider's reference, no step."""
    return {
        "id": str(booking.id),
        "state": booking.state,
        "outcome_known": booking.outcome_known,
        "hotel": booking.hotel,
        "room_type": booking.room_type,
        "arrival": booking.arrival.isoformat(),
        "nights": booking.nights,
        "guest": booking.guest,
        "client_reference": booking.client_reference,
        "price": booking.price.as_json(),
        "created_at": booking.created_at.isoformat().replace("+00:00", "Z"),
        "links": {"self": f"/v1/bookings/{booking.id}"},
    }


def _parse(booking_id: str) -> uuid.UUID | None:
    """The id in its one spelling: 36 characters, lower case."""
    try:
        found = uuid.UUID(booking_id)
    except ValueError:
        return None
    return found if str(found) == booking_id else None

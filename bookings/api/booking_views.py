"""The routes of bookings. Each parses, calls one function and renders."""

from http import HTTPStatus
from typing import Any, ClassVar
from uuid import UUID

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from bookings import cancellation, listings, selectors, submission
from bookings.api import (
    admission,
    auth,
    cursors,
    etags,
    faults,
    idempotency,
    parameters,
    parsers,
    representations,
    serializers,
    waiting,
)
from bookings.api.resource import Resource, id_of
from bookings.cancellation import Verdict
from bookings.listings import Period, Wanted
from bookings.models import Scope
from bookings.selectors import BookingView
from ledger import client_view
from ledger.states import ClientState

READ = {"GET": Scope.READ.value, "HEAD": Scope.READ.value}
READING = ["get", "head"]
EVENTS_MAX = 1_000


class Bookings(Resource):
    http_method_names = ["get", "head", "post"]
    scopes = {**READ, "POST": Scope.WRITE.value}
    parameters: ClassVar = {"GET": parameters.Listed}

    def get(self, request: Request) -> Response:
        """The tenant's bookings, newest first.

        A page looks at a bounded number of bookings. With filters it may therefore hold fewer than `limit`, even none, and
        still have a `next`: only a `next` of null is the end.
        """
        tenant, given = auth.tenant_of(request).id, self.given
        after = cursors.begin(request, given)
        found = listings.page(
            tenant, _wanted(given), limit=given["limit"], after=UUID(after) if after else None
        )
        items = [representations.booking(one) for one in found.bookings]
        following = cursors.next_link(request, given, found.last)
        return Response(representations.page(items, following))

    def post(self, request: Request) -> Response:
        """Accept a booking once: 202 and where to look; the same key again, the same booking."""
        key = idempotency.key_of(request)
        parsers.require_json(request)
        wanted = serializers.validated(request.data)
        tenant = auth.tenant_of(request)
        with admission.place(tenant.id, [key]) as place:
            booked = submission.book(tenant, key, wanted)
            place.made = int(booked.created)
        is_new = booked.created
        seen = selectors.accepted(booked, wanted) if is_new else selectors.current(booked.booking)
        body = representations.booking(seen)
        headers = {
            "Location": body["links"]["self"],
            "Retry-After": "1",
            "ETag": etags.of(body),
        }
        if not is_new:
            headers["Idempotent-Replayed"] = "true"
        return Response(body, status=HTTPStatus.ACCEPTED, headers=headers)


class OneBooking(Resource):
    http_method_names = READING
    scopes = READ

    def get(self, request: Request, booking_id: str) -> Response:
        """One booking of the caller's. Unknown, another tenant's and nonsense are the same 404.

        With `Prefer: wait=N` the answer comes when the booking differs from what If-None-Match names, or, without that
        header, when it has ended or is parked; after N seconds it comes as it is.
        """
        known, seconds = etags.known(request), waiting.wanted(request)
        tenant, found_id = auth.tenant_of(request).id, id_of(booking_id)

        def look() -> tuple[str, dict[str, Any]]:
            if (found := selectors.booking(tenant, found_id)) is None:
                raise Http404
            body = representations.booking(found)
            return etags.of(body), body

        def is_news(seen: tuple[str, dict[str, Any]]) -> bool:
            if known is not None:
                return not known.match_weakly(seen[0])
            return seen[1]["state"] in representations.SETTLED

        (tag, body), has_waited = waiting.until(look, is_news, seconds)
        headers = {"ETag": tag} | ({"Preference-Applied": f"wait={seconds}"} if has_waited else {})
        if known is not None and known.match_weakly(tag):
            return Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(body, headers=headers)


class Cancel(Resource):
    http_method_names = ["post"]
    scopes: ClassVar = {"POST": Scope.WRITE.value}

    def post(self, request: Request, booking_id: str) -> Response:
        """Turn a booking back, if it still is as the client saw it: what was done is undone, nothing more is begun.

        202: it goes back, by this or by what came before. 409: too late, with its state. 412: it has changed, with its tag.
        """
        tags = etags.required(request)
        result = cancellation.cancel(
            auth.tenant_of(request).id,
            id_of(booking_id),
            by=f"api key {auth.key_of(request).prefix}",
            reason=_reason(request) or "cancelled by its client",
            is_known=lambda seen: tags.match(etags.of(representations.booking(seen))),
        )
        if result is None:
            raise Http404
        body = representations.booking(result.booking)
        if result.verdict is not Verdict.ACCEPTED:
            raise _refusal(result.verdict, result.booking, etags.of(body))
        return Response(body, status=HTTPStatus.ACCEPTED, headers={"ETag": etags.of(body)})


class Journal(Resource):
    http_method_names = READING
    scopes = READ

    def get(self, request: Request, booking_id: str) -> Response:
        """What was sent and heard for a booking, in order; the last entries where there are very many."""
        events, is_cut = client_view.journal(_job_of(request, booking_id), EVENTS_MAX)
        return Response(representations.journal(events, is_cut=is_cut))


class Operations(Resource):
    http_method_names = READING
    scopes = READ

    def get(self, request: Request, booking_id: str) -> Response:
        """Each operation of a booking: what is known of it, or since when it is not, and whether it holds the booking up."""
        found = client_view.job_operations(_job_of(request, booking_id))
        return Response(representations.operations(found))


def _wanted(given: Any) -> Wanted:
    return Wanted(
        period=Period(
            created_after=given.get("created_after"), created_before=given.get("created_before")
        ),
        state=given.get("state"),
        standing=given.get("class"),
        arrival_from=given.get("arrival_from"),
        arrival_to=given.get("arrival_to"),
        client_reference=given.get("client_reference"),
    )


def _reason(request: Request) -> str:
    """Of a body that may be left out."""
    if request.META.get("CONTENT_LENGTH") in (None, "", "0") and (
        "HTTP_TRANSFER_ENCODING" not in request.META
    ):
        return ""
    parsers.require_json(request)
    return serializers.cancel_reason(request.data)


def _refusal(verdict: Verdict, seen: BookingView, tag: str) -> faults.Problem:
    current = {"state": str(seen.state), "version": seen.version, "etag": tag}
    if verdict is Verdict.STALE:
        detail = "the booking is not as you saw it: look again, and decide again"
        return faults.Problem(
            HTTPStatus.PRECONDITION_FAILED, "stale", detail, members={"current": current}
        )
    why = {
        ClientState.IN_PROGRESS: "it is past the point where it could be undone",
        ClientState.PARKED: "it is parked: a person decides",
    }.get(seen.state, f"it has ended: {seen.state}")
    return faults.Problem(HTTPStatus.CONFLICT, "not-cancellable", why, members={"current": current})


def _job_of(request: Request, booking_id: str) -> UUID:
    found = selectors.find(auth.tenant_of(request).id, id_of(booking_id))
    if found is None:
        raise Http404
    return found.job_id

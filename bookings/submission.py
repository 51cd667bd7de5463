"""Turns a validated request into a booking and its job: the one durable transaction of a submission.

The key speaks first: a request that was accepted once gets its booking again whatever has become of rates and dates
since, so only a submission that is new here is checked against the price, and one refused then leaves no row behind.
"""

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from django.db import transaction

from bookings import prices, saga
from bookings.models import Booking, Hotel, RoomType
from bookings.requests import ValidatedRequest
from ledger import crashpoints, submission
from ledger.saga import vars_of


class Tenant(Protocol):
    """Who books; the API's user and the ledger's row both are one."""

    @property
    def id(self) -> UUID: ...

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Booked:
    """The booking of a submission key; `created` is false where the key was known."""

    booking: Booking
    created: bool


def book(tenant: Tenant, key: str, request: ValidatedRequest) -> Booked:
    """Accept the request once. RequestRefused, SubmissionConflict and SubmissionGone leave no row."""
    crashpoints.reach("booking.before_insert")
    with transaction.atomic(durable=True):
        offer = prices.offer(request)
        submitted = submission.submit(
            tenant_id=tenant.id,
            key=key,
            saga=saga.trip,
            request=request.as_json(),
            input=vars_of(_trip(tenant, request, offer)),
        )
        if submitted.created:
            offer.check(request)
            booking = _insert(tenant, request, offer, submitted.job_id)
        else:
            booking = Booking.objects.select_related("hotel", "room_type").get(
                job_id=submitted.job_id
            )
        crashpoints.reach("booking.after_insert")
    crashpoints.reach("booking.before_response")
    return Booked(booking, submitted.created)


def _trip(tenant: Tenant, request: ValidatedRequest, offer: prices.Offer) -> saga.TripRequest:
    return saga.TripRequest(
        hotel=request.hotel,
        room_type=request.room_type,
        arrival=request.arrival.isoformat(),
        nights=request.nights,
        amount_minor=offer.price.amount_minor,
        currency=offer.price.currency,
        account=tenant.name,
        subject=str(offer.subject),
        guest=request.guest,
    )


def _insert(
    tenant: Tenant, request: ValidatedRequest, offer: prices.Offer, job_id: UUID
) -> Booking:
    return Booking.objects.create(
        id=offer.subject,
        tenant_id=tenant.id,
        job_id=job_id,
        # Known by id and code already: whoever renders the booking need not read them again.
        hotel=Hotel(pk=offer.hotel_id, code=request.hotel),
        room_type=RoomType(pk=offer.room_type_id, code=request.room_type),
        arrival=request.arrival,
        nights=request.nights,
        guest=request.guest,
        client_reference=request.client_reference,
        amount_minor=offer.price.amount_minor,
        currency=offer.price.currency,
    )

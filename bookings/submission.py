"""Turns a validated request into a booking and its job, in the one durable transaction of a submission.

The key speaks first: a request that was accepted once gets its booking again whatever has become of rates and dates
since, so only a submission that is new here is checked against the price, and one refused then leaves no row behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction

from bookings import prices, saga
from bookings.models import Booking
from bookings.requests import ValidatedRequest
from ledger import crashpoints, outcomes, submission, tickets

CHUNK = 50  # bookings in one transaction: it holds their keys, and so others that send the same ones, until its end
REFUSALS = (prices.RequestRefused, outcomes.SubmissionConflict, outcomes.SubmissionGone)
Wanted = tuple[str, ValidatedRequest]  # a submission key, and what it is for


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


# The stay is priced, and written for all to see, by the statement that makes its job: nothing can come between them.
# A stay that is not on sale gets no row here; `check` says why, and takes the job back.
ACCEPT = submission.statement(
    source=prices.OFFER,
    input="""%(input)s::jsonb || jsonb_build_object(
        'amount_minor', amount_minor, 'currency', currency, 'subject', subject)""",
    then=""",
booking AS (
    INSERT INTO bookings_booking (id, job_id, tenant_id, hotel_id, room_type_id, arrival, nights,
        guest, client_reference, amount_minor, currency)
    SELECT subject, job.id, %(tenant)s, hotel_id, room_type_id, %(arrival)s, %(nights)s,
        %(guest)s, %(client_reference)s, amount_minor, currency
    FROM job, source WHERE nights_priced = %(nights)s
    RETURNING created_at)
SELECT job.id, created_at, source.* FROM source LEFT JOIN job ON true LEFT JOIN booking ON true""",
)


def book(tenant: Tenant, key: str, request: ValidatedRequest) -> Booked:
    """Accept the request once. RequestRefused, SubmissionConflict and SubmissionGone leave no row."""
    crashpoints.reach("booking.before_insert")
    with transaction.atomic(durable=True):
        booked = _accept(tenant, key, request)
        crashpoints.reach("booking.after_insert")
    crashpoints.reach("booking.before_response")
    return booked


def book_each(tenant: Tenant, wanted: Sequence[Wanted]) -> list[Booked | Exception]:
    """Accept each as `book` would, CHUNK of them in one transaction: what became of each, in order. One ring for all.

    Where the database stops answering, its error stands for all that are not known to be accepted.
    """
    found: list[Booked | Exception] = []
    with tickets.gathered():
        try:
            for first in range(0, len(wanted), CHUNK):
                found += _book_chunk(tenant, wanted[first : first + CHUNK])
        except (OperationalError, InterfaceError) as error:
            found += [error] * (len(wanted) - len(found))
    return found


def _book_chunk(tenant: Tenant, wanted: Sequence[Wanted]) -> list[Booked | Exception]:
    """In order of keys, so that two that share some wait for each other in one direction only; of equal keys the first
    that was named speaks first.
    """
    found: dict[int, Booked | Exception] = {}
    crashpoints.reach("booking.before_insert")
    with transaction.atomic(durable=True):
        for n in sorted(range(len(wanted)), key=lambda n: wanted[n][0]):
            found[n] = _booked_or_refusal(tenant, *wanted[n])
        crashpoints.reach("booking.after_insert")
    crashpoints.reach("booking.before_response")
    return [found[n] for n in range(len(wanted))]


def _booked_or_refusal(tenant: Tenant, key: str, request: ValidatedRequest) -> Booked | Exception:
    try:
        # A savepoint: a refusal takes back its own rows and no neighbour's.
        with transaction.atomic():
            return _accept(tenant, key, request)
    except REFUSALS as refusal:
        return refusal


def _accept(tenant: Tenant, key: str, request: ValidatedRequest) -> Booked:
    submitted = submission.submit_beside(
        submission.Beside(ACCEPT, _columns(request)),
        tenant_id=tenant.id,
        key=key,
        saga=saga.trip,
        request=request.as_json(),
        input=_input(tenant, request),
    )
    if submitted.created:
        created_at, *found = submitted.answer
        offer = prices.Offer(*found)
        offer.check(request)
        return Booked(_booking(tenant, request, offer, submitted.job_id, created_at), created=True)
    known = Booking.objects.select_related("hotel", "room_type")
    return Booked(known.get(job_id=submitted.job_id), created=False)


def _columns(request: ValidatedRequest) -> dict[str, object]:
    return {
        "hotel": request.hotel,
        "room_type": request.room_type,
        "arrival": request.arrival,
        "nights": request.nights,
        "guest": request.guest,
        "client_reference": request.client_reference,
    }


def _input(tenant: Tenant, request: ValidatedRequest) -> dict[str, object]:
    """A saga.TripRequest but for the members that ACCEPT adds: what it costs, and the booking's id."""
    return {
        "hotel": request.hotel,
        "room_type": request.room_type,
        "arrival": request.arrival.isoformat(),
        "nights": request.nights,
        "account": tenant.name,
        "guest": request.guest,
    }


def _booking(
    tenant: Tenant,
    request: ValidatedRequest,
    offer: prices.Offer,
    job_id: UUID,
    created_at: datetime,
) -> Booking:
    """The row that ACCEPT has written."""
    assert offer.hotel_id is not None, "the offer was checked"
    assert offer.room_type_id is not None, "the offer was checked"
    return Booking(
        id=offer.subject,
        tenant_id=tenant.id,
        job_id=job_id,
        hotel_id=offer.hotel_id,
        room_type_id=offer.room_type_id,
        arrival=request.arrival,
        nights=request.nights,
        guest=request.guest,
        client_reference=request.client_reference,
        amount_minor=offer.price.amount_minor,
        currency=offer.price.currency,
        created_at=created_at,
    )

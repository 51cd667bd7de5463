"""Turns a validated request into a booking and its job: one statement, which commits all of a submission or nothing.

The key speaks first: a request that was accepted once gets its booking again whatever has become of rates and dates
since, so only a submission that is new here is checked against the price, and one refused then leaves no row behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from django.db import Error, connection, transaction

from bookings import prices, saga
from bookings.models import Booking
from bookings.requests import ValidatedRequest
from ledger import crashpoints, outcomes, sql, submission, tickets
from ledger.outcomes import Money

CHUNK = 50  # bookings in one transaction: it holds their keys, and so others that send the same ones, until its end
REFUSALS = (prices.RequestRefused, outcomes.SubmissionConflict, outcomes.SubmissionGone)
ASKED = ("hotel", "room_type", "arrival", "nights", "guest")
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

    id: UUID
    price: Money
    created_at: datetime
    created: bool

    @property
    def booking(self) -> Booking:
        """Its row, read now."""
        return Booking.objects.select_related("hotel", "room_type").get(id=self.id)


# One statement prices the stay and writes the booking, its job and the use of its key: the price written is the one read,
# and all of it is there or nothing; outside of a transaction it commits by itself. It writes where the stay is on offer,
# or `anyway`, to be taken back. The function is in the migration 0008.
ACCEPT = f"""SELECT * FROM bookings_accept({submission.ARGUMENTS},
    {prices.ARGUMENTS}, %(guest)s, %(client_reference)s, %(anyway)s)"""  # noqa: S608  a constant of ours


def book(tenant: Tenant, key: str, request: ValidatedRequest) -> Booked:
    """Accept the request once. RequestRefused, SubmissionConflict and SubmissionGone leave no row."""
    assert not connection.in_atomic_block, "a booking is accepted when this returns"
    crashpoints.reach("booking.before_insert")
    booked = _book(tenant, key, request)
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
        except Error as error:
            if not sql.passes(error):
                raise
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
        return _book(tenant, key, request)
    except REFUSALS as refusal:
        return refusal


def _book(tenant: Tenant, key: str, request: ValidatedRequest) -> Booked:
    if booked := _accept(tenant, key, request):
        return booked
    # Not on offer, and the key is new as far as can be seen without taking it. But the key speaks first: so it is taken,
    # which waits for whoever is about to use it, and the refusal takes that back (in a bulk, to a savepoint).
    with transaction.atomic():
        booked = _accept(tenant, key, request, anyway=True)
    assert booked, "whoever takes a key has it or finds it"
    return booked


def _accept(
    tenant: Tenant, key: str, request: ValidatedRequest, *, anyway: bool = False
) -> Booked | None:
    wanted = request.as_json()
    submitted = submission.submit_beside(
        submission.Beside(ACCEPT, _columns(request, anyway=anyway)),
        tenant_id=tenant.id,
        key=key,
        saga=saga.trip,
        request=wanted,
        # A saga.TripRequest, but for the members that the statement adds.
        input={name: wanted[name] for name in ASKED} | {"account": tenant.name},
    )
    if submitted is None:
        return None
    if not submitted.created:
        return _known(submitted.job_id)
    created_at, *found = submitted.answer
    offer = prices.Offer(*found)
    if anyway:
        offer.check(request)
    return Booked(offer.subject, offer.price, created_at, created=True)


def _columns(request: ValidatedRequest, *, anyway: bool) -> dict[str, object]:
    return {
        **prices.parameters(request),
        "guest": request.guest,
        "client_reference": request.client_reference,
        "anyway": anyway,
    }


def _known(job_id: UUID) -> Booked:
    row = Booking.objects.get(job_id=job_id)
    return Booked(row.id, Money(row.amount_minor, row.currency), row.created_at, created=False)

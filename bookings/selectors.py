"""The read side of bookings: a booking with what its job says of it, always of one tenant."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol
from uuid import UUID

from bookings.models import Booking
from bookings.requests import ValidatedRequest
from ledger import client_view, sql
from ledger.client_view import JobView
from ledger.outcomes import Money
from ledger.standing import Standing
from ledger.states import ClientState


@dataclass(frozen=True, slots=True)
class BookingView:
    """`outcome_known` is false while an operation is in doubt, so that unknown is never read as failed."""

    id: UUID
    state: ClientState
    standing: Standing
    outcome_known: bool
    version: int
    hotel: str
    room_type: str
    arrival: date
    nights: int
    guest: str
    client_reference: str
    price: Money
    created_at: datetime


class Accepted(Protocol):
    """What the acceptance of a booking told, beside what was asked for."""

    @property
    def id(self) -> UUID: ...

    @property
    def price(self) -> Money: ...

    @property
    def created_at(self) -> datetime: ...


def find(tenant_id: UUID, booking_id: UUID) -> Booking | None:
    """A tenant's booking; None for one that is not there or another tenant's, which look the same."""
    own = Booking.objects.select_related("hotel", "room_type").filter(tenant_id=tenant_id)
    return own.filter(id=booking_id).first()


def booking(tenant_id: UUID, booking_id: UUID) -> BookingView | None:
    """A tenant's booking as it stands now."""
    with sql.snapshot():
        found = find(tenant_id, booking_id)
        return views([found])[0] if found else None


def current(booking: Booking) -> BookingView:
    """A booking at hand as it stands now."""
    with sql.snapshot():
        return views([booking])[0]


def accepted(booked: Accepted, request: ValidatedRequest) -> BookingView:
    """A booking that was made a moment ago, without asking again: it waits, and nothing of it was ever sent."""
    return BookingView(
        id=booked.id,
        state=ClientState.IN_PROGRESS,
        standing=Standing.IN_PROGRESS,
        outcome_known=True,
        version=0,
        hotel=request.hotel,
        room_type=request.room_type,
        arrival=request.arrival,
        nights=request.nights,
        guest=request.guest,
        client_reference=request.client_reference,
        price=booked.price,
        created_at=booked.created_at,
    )


def views(bookings: Sequence[Booking]) -> list[BookingView]:
    """These bookings as they stand. Asked within one snapshot, or while their jobs are locked."""
    jobs = client_view.jobs([one.job_id for one in bookings])
    return [_view(one, jobs[one.job_id]) for one in bookings if one.job_id in jobs]


def _view(booking: Booking, job: JobView) -> BookingView:
    return BookingView(
        id=booking.id,
        state=job.state,
        standing=job.standing,
        outcome_known=job.outcome_known,
        version=job.version,
        hotel=booking.hotel.code,
        room_type=booking.room_type.code,
        arrival=booking.arrival,
        nights=booking.nights,
        guest=booking.guest,
        client_reference=booking.client_reference,
        price=Money(booking.amount_minor, booking.currency),
        created_at=booking.created_at,
    )

"""The read side of bookings: a booking with what its job says of it, always of one tenant."""

from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from bookings.models import Booking
from ledger import selectors
from ledger.outcomes import Money
from ledger.states import JobState


@dataclass(frozen=True, slots=True)
class BookingView:
    """`outcome_known` is false while an operation is in doubt, so that unknown is never read as failed."""

    id: UUID
    state: str
    outcome_known: bool
    hotel: str
    room_type: str
    arrival: date
    nights: int
    guest: str
    client_reference: str
    price: Money
    created_at: datetime


def booking(tenant_id: UUID, booking_id: UUID) -> BookingView | None:
    """A tenant's booking; None for one that is not there or another tenant's, which look the same."""
    found = (
        Booking.objects.select_related("hotel", "room_type")
        .filter(id=booking_id, tenant_id=tenant_id)
        .first()
    )
    return current(found) if found else None


def current(booking: Booking) -> BookingView:
    """A booking as it stands now."""
    job = selectors.job(booking.job_id)
    assert job is not None, "a booking's job is kept as long as the booking"
    return _view(booking, state=job.state, outcome_known=job.outcome_known)


def accepted(booking: Booking) -> BookingView:
    """A booking that was made a moment ago, without asking again: it waits, and nothing of it was ever sent."""
    return _view(booking, state=JobState.WAITING, outcome_known=True)


def _view(booking: Booking, *, state: str, outcome_known: bool) -> BookingView:
    return BookingView(
        id=booking.id,
        state=str(state),
        outcome_known=outcome_known,
        hotel=booking.hotel.code,
        room_type=booking.room_type.code,
        arrival=booking.arrival,
        nights=booking.nights,
        guest=booking.guest,
        client_reference=booking.client_reference,
        price=Money(booking.amount_minor, booking.currency),
        created_at=booking.created_at,
    )

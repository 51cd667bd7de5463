"""A client's cancel: what the client saw is compared, and the trip turned back, under one lock of the job's row.

The promise: of a cancel and the point of no return exactly one wins, and a client whose picture is old changes nothing.
A cancel asked for twice is one cancel: a trip that goes back already is left alone, and that is what was wanted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from bookings import selectors
from bookings.selectors import BookingView
from ledger import turns
from ledger.states import ClientState


class Verdict(StrEnum):
    """What became of a cancel.

    accepted  it goes back, by this cancel or by what came before it
    stale     the client saw it otherwise; nothing was changed
    too_late  its point of no return is passed, it has ended, or it is parked; nothing was changed
    """

    ACCEPTED = "accepted"
    STALE = "stale"
    TOO_LATE = "too_late"


@dataclass(frozen=True, slots=True)
class Cancelled:
    """`booking` as it stands after it; where nothing was changed, as it was found."""

    verdict: Verdict
    booking: BookingView


def cancel(
    tenant_id: UUID,
    booking_id: UUID,
    *,
    by: str,
    reason: str,
    is_known: Callable[[BookingView], bool],
) -> Cancelled | None:
    """Turn a tenant's trip back, if it is as the client saw it (`is_known`). None: the tenant has no such booking."""
    booking = selectors.find(tenant_id, booking_id)
    if booking is None:
        return None
    seen: list[BookingView] = []

    def is_so() -> bool:
        seen[:] = selectors.views([booking])
        return bool(seen) and is_known(seen[0])

    if turns.cancel_if(is_so, booking.job_id, by=by, reason=reason):
        return Cancelled(Verdict.ACCEPTED, selectors.current(booking))
    if not seen:
        return None  # retention took it just now
    if seen[0].state is ClientState.COMPENSATING:
        return Cancelled(Verdict.ACCEPTED, seen[0])
    return Cancelled(Verdict.TOO_LATE if is_known(seen[0]) else Verdict.STALE, seen[0])

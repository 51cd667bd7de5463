"""What of a booking goes with its job, once that is past its term: the booking, and with it what it says of a guest.

Reservations stay: they name nobody, and a night that is taken needs its reason in the books.
"""

from collections.abc import Sequence
from uuid import UUID

from bookings.models import Booking
from ledger import retention


def remove(job_ids: Sequence[UUID]) -> None:
    """Remove the bookings of these jobs, in the transaction that removes the jobs."""
    Booking.objects.filter(job_id__in=job_ids).delete()


def register() -> None:
    retention.register(remove)

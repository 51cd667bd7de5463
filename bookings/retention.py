"""What of a booking goes with its job, once that is past its term: the booking, with what it says of a guest, and what its
tenant was sent about it.

Reservations stay: they name nobody, and a night that is taken needs its reason in the books.
"""

from collections.abc import Sequence
from uuid import UUID

from bookings.models import Booking, WebhookDelivery
from ledger import retention


def remove(job_ids: Sequence[UUID]) -> None:
    """Remove the bookings of these jobs, in the transaction that removes the jobs."""
    WebhookDelivery.objects.filter(booking__job_id__in=job_ids).delete()
    Booking.objects.filter(job_id__in=job_ids).delete()


def register() -> None:
    retention.register(remove)

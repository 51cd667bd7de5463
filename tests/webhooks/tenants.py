"""A tenant that is told of its bookings; jobs are moved as a sweep or a person would: the trigger writes the event."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from bookings import submission
from bookings.models import Booking, WebhookDelivery, WebhookEndpoint
from bookings.webhooks import endpoints, sending
from ledger import models, sql
from tests import hotels
from tests.webhooks.receivers import Got, Receiver

PARK = """
UPDATE ledger_job SET acting_fence = fence, fence = fence + 1, state = 'parked', parked_reason = 'conflict',
    parked_at = ledger_now() WHERE id = %s
"""
GO_ON = """
UPDATE ledger_job SET acting_fence = fence, fence = fence + 1, state = 'waiting', parked_reason = '', parked_at = NULL
WHERE id = %s
"""
CLOSE = """
UPDATE ledger_job SET acting_fence = fence, fence = fence + 1, state = 'closed', parked_reason = '', parked_at = NULL,
    finished_at = ledger_now() WHERE id = %s
"""
# Rows move, no clock does.
MAKE_DUE = """
UPDATE bookings_webhookdelivery SET due_at = ledger_now(), lease_until = NULL WHERE due_at IS NOT NULL
"""
REST_IS_OVER = "UPDATE bookings_webhookendpoint SET paused_until = NULL"
AGE = """
UPDATE bookings_webhookdelivery SET term_from = term_from - %s, created_at = created_at - %s
"""


TERM = timedelta(days=3)


class Told:
    def __init__(self, small: hotels.SmallHotel, receiver: Receiver, path: str = "/hook") -> None:
        self.small, self.receiver, self.path = small, receiver, path
        self.tenant = hotels.tenant(f"agent-{uuid4().hex[:12]}")
        made = endpoints.create(self.tenant.id, receiver.url(path))
        self.endpoint_id, self.secret = made.endpoint.id, made.secret

    @property
    def endpoint(self) -> WebhookEndpoint:
        return WebhookEndpoint.objects.get(id=self.endpoint_id)

    @property
    def got(self) -> list[Got]:
        return self.receiver.at(self.path)

    def book(self) -> Booking:
        return submission.book(self.tenant, uuid4().hex, hotels.wanted(self.small)).booking

    def park(self) -> Booking:
        """One more booking, parked: one more event."""
        booking = self.book()
        sql.fetch(PARK, [booking.job_id])
        return booking

    def deliveries(self) -> list[WebhookDelivery]:
        return list(WebhookDelivery.objects.filter(endpoint_id=self.endpoint_id).order_by("id"))

    def delivery(self) -> WebhookDelivery:
        (found,) = self.deliveries()
        return found


def make_due() -> None:
    sql.fetch(MAKE_DUE)
    sql.fetch(REST_IS_OVER)


def age(by: timedelta) -> None:
    sql.fetch(AGE, [by, by])


def send(sender: sending.Sender | None = None, patience: float = 10.0) -> int:
    return (sender or sending.Sender()).run(patience)


def events(job_id: UUID) -> list[tuple[str, Any]]:
    return list(
        models.Event.objects.filter(job_id=job_id).order_by("id").values_list("state", "pending")
    )


def version(job_id: UUID) -> int:
    return int(models.Job.objects.get(id=job_id).seq)


def wait_seconds(delivery_id: int) -> float:
    rows = sql.fetch(
        "SELECT extract(epoch FROM due_at - ledger_now()) FROM bookings_webhookdelivery WHERE id = %s",
        [delivery_id],
    )
    return float(rows[0][0])

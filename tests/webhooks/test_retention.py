"""What was told of a booking goes with it, and holds up nobody's retention."""

from datetime import timedelta

from bookings.models import Booking
from ledger import models, retention, sql
from tests.conftest import Roles
from tests.webhooks import tenants
from tests.webhooks.tenants import Told


def test_events_and_deliveries_go_with_their_job(told: Told, as_role: Roles) -> None:
    old, young = told.park(), told.park()
    for booking in (old, young):
        sql.fetch(tenants.CLOSE, [booking.job_id])
    tenants.send()
    sql.fetch(
        "UPDATE ledger_job SET acting_fence = fence, finished_at = finished_at - interval '9 days' WHERE id = %s",
        [old.job_id],
    )
    with as_role("retention"):
        assert retention.retain(timedelta(days=8)) == 1
    assert set(models.Event.objects.values_list("job_id", flat=True)) == {young.job_id}
    assert {delivery.booking_id for delivery in told.deliveries()} == {young.id}
    assert Booking.objects.count() == 1
    assert tenants.send() == 0

"""A booking goes with its job once that is past its term; its key stays used."""

from datetime import timedelta

import pytest
from django.db import connection

from bookings import rooms, submission
from bookings.models import Booking
from ledger import outcomes, retention
from tests import drives, hotels
from tests.conftest import Roles

TERM = timedelta(days=30)


def finish_long_ago(booking: Booking) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_job SET acting_fence = fence, finished_at = ledger_now() - interval '31 days' WHERE id = %s",
            [booking.job_id],
        )


@pytest.mark.usefixtures("database")
def test_a_booking_past_its_term_goes_and_its_key_stays_used(as_role: Roles) -> None:
    small, agent = hotels.make(nights=2), hotels.tenant()
    rooms.hold(
        hotels.call("other", small.stay())
    )  # no room is left: the trips end without a provider
    old, young = (
        submission.book(agent, key, hotels.wanted(small)).booking for key in ("old", "young")
    )
    drives.drive_all()
    finish_long_ago(old)
    with as_role("retention"):
        assert retention.retain(TERM) == 1
        assert retention.retain(TERM) == 0
    assert list(Booking.objects.values_list("id", flat=True)) == [young.id]
    assert hotels.reservation("other").state == "held"
    with pytest.raises(outcomes.SubmissionGone):
        submission.book(agent, "old", hotels.wanted(small))
    assert Booking.objects.count() == 1

"""The connection is cut before or after any message to the server, BEGIN and COMMIT too: the job ends as if it had not been.

*After* is after the server has answered, so that the work is done and only its reply is lost. The provider's own books
are the second witness.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.db import OperationalError

from bookings import submission
from bookings.models import Booking
from ledger import models
from recovery import proxy
from tests import drives, hotels
from tests.cases.trips import Stage, Trip
from tests.trouble import wires

pytestmark = pytest.mark.timeout(120)
Roles = Callable[[str], AbstractContextManager[None]]
COMMIT = b"COMMIT"
ACCEPTS = b"bookings_accept"
ASKED_WHILE_WAITING = (
    b"state = 'queued' AND suspect",
    b"state = 'waiting' AND lane",
    b"WITH picked",
)


@pytest.fixture
def cutter() -> wires.Cutter:
    return wires.Cutter(dict.fromkeys(ASKED_WHILE_WAITING, 4))


@pytest.fixture
def between(database: None, cutter: wires.Cutter) -> Iterator[proxy.Proxy]:
    with proxy.Proxy(wires.database(), cut=cutter) as found:
        yield found


def ending(trip: Trip) -> tuple[Any, ...]:
    """All that a fault on the way must not show in."""
    row = trip.row()
    return (
        *(row.state, row.fence, row.leases_lost, trip.effects(), trip.requests()),
        *(drives.receipts(trip.job_id), models.Attempt.objects.filter(job_id=trip.job_id).count()),
    )


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("way", ["forward", "back"])
def test_a_trip_ends_the_same_wherever_its_connection_is_cut(
    stage: Stage,
    between: proxy.Proxy,
    cutter: wires.Cutter,
    as_role: Roles,
    way: str,
    when: proxy.Cut,
) -> None:
    if way == "back":
        stage.refuse_tickets()

    def drive(nth: int) -> tuple[Any, ...]:
        trip = stage.book()
        with as_role("worker"), wires.through(between):
            cutter.arm(nth, when)
            drives.drive_all()
        trip.agree()
        return ending(trip)

    drive(0)  # a process tells its versions once
    undisturbed = drive(0)
    messages = cutter.seen
    assert undisturbed[0] == {"forward": "confirmed", "back": "compensated"}[way]
    # The way back begins with all of the way forward but its end.
    first = 1 if way == "back" else messages * 2 // 3
    cut = []
    for nth in range(first, messages + 1):
        assert drive(nth) == undisturbed, f"message {nth}, {cutter.cut}"
        cut += cutter.cut
    assert len(cut) >= (messages - first) * 0.9  # a slow run renews its lease too
    assert sum(COMMIT in piece for piece in cut) >= (4 if way == "back" else 1)
    print(f"{len(cut)} messages cut {when}")  # noqa: T201  a measured figure


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_submission_cut_anywhere_is_there_or_not_and_its_key_leads_to_one_job(
    stage: Stage, between: proxy.Proxy, cutter: wires.Cutter, when: proxy.Cut
) -> None:
    tenant, wanted = hotels.tenant(), hotels.wanted(stage.small)
    made_before = set()
    for nth in itertools.count(1):
        with wires.through(between):
            cutter.arm(nth, when)
            with contextlib.suppress(OperationalError):
                submission.book(tenant, f"key-{nth}", wanted)
        booked = submission.book(tenant, f"key-{nth}", wanted)
        made_before.add((ACCEPTS in b"".join(cutter.cut), booked.created))
        assert models.Job.objects.count() == Booking.objects.count() == nth
        if not cutter.cut:
            break
    # Only where the reply to the statement that accepts it was lost, or nothing was cut, it had been accepted.
    assert made_before == {(True, when == "before"), (False, True), (False, False)}

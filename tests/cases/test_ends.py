"""C74: a trip with nothing to undo ends in one pass, and one with something is undone from stored receipts alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bookings import rooms
from config import programs
from ledger import crashpoints, engine, models
from ledger.outcomes import Confirmed
from tests import drives, hotels
from tests.acceptance import addresses
from tests.cases import trips
from tests.cases.trips import BACKWARD, PAID, REFUNDED, Stage, Trip

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import django; django.setup()
import config.celery
from ledger import engine
print(engine.drive("compensation"))
"""
SECONDS = 25


def drive_in_another_process(stage: Stage) -> int:
    """A new interpreter drives the compensation lane once; how many jobs it claimed."""
    ours = {key: value for key, value in os.environ.items() if key not in programs.ADDRESSES}
    theirs = {
        "DATABASE_URL": addresses.database_url(),
        "BROKER_URL": addresses.broker_url(0),
        "PAYMENT_URL": stage.sandbox.url,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "AMENDS_ROLE": "worker",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**ours, **theirs},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.parametrize("step", [1, 2])
def test_a_trip_whose_beginning_is_refused_ends_in_one_pass_and_is_never_found_again(
    stage: Stage, step: int
) -> None:
    if step == 1:
        stage.small.room_type.nights.update(capacity=0)
    else:
        stage.rules({"do": "refuse", "match": "capture"})
    trip = stage.book()
    engine.drive("forward")
    if step == 2:  # the room is given back in its own lane, and that is all
        engine.drive("compensation")
    assert trip.state() == ("refused" if step == 1 else "compensated")
    before = trips.snapshot(trip)
    for _ in range(5):
        trips.sweep()
        assert drives.drive_all() == 0
    assert trips.snapshot(trip) == before
    assert (trip.effects(), stage.small.taken()) == ([], [0, 0])
    assert trips.classes() == {"confirmed_failure" if step == 1 else "completed_recovery": 1}


def lose_the_room(stage: Stage, trip: Trip) -> None:
    """While the payment is under way, the hold ends and another guest takes the last room: securing it is refused."""
    stage.small.room_type.nights.update(capacity=1)
    rival: list[object] = []

    def take(_point: str) -> None:
        if not rival and stage.small.taken() == [1, 1]:
            hotels.expire(trip.operation(step="reserve_room"))
            rival.append(rooms.hold(hotels.call("rival", stage.small.stay())))

    with crashpoints.armed("settle.after", take):
        engine.drive("forward")
    assert isinstance(rival[0], Confirmed)
    assert trip.outcomes(step="secure_room") == ["refused"]


@pytest.mark.timeout(60)
def test_a_process_that_knows_nothing_undoes_a_trip_from_its_stored_receipts(stage: Stage) -> None:
    trip = stage.book()
    lose_the_room(stage, trip)
    assert (trip.state(), trip.effects()) == ("waiting", [PAID])
    assert drive_in_another_process(stage) == 1
    assert (trip.state(), trip.effects()) == ("compensated", [PAID, REFUNDED])
    [refund] = stage.sandbox.effects(trip.operation(BACKWARD))
    assert refund["resource"]["capture"] == trip.final().evidence["ref"]
    sent = models.Attempt.objects.get(job_id=trip.job_id, direction="backward", step=trips.CAPTURE)
    assert sent.arguments is not None
    assert sent.arguments["capture"] == trip.final().evidence["ref"]
    assert hotels.reservation("rival").state == "held"
    assert (stage.small.taken(), trips.classes()) == ([1, 1], {"completed_recovery": 1})
    trip.agree()

"""C09: a cancel and the end of a trip race; one conditional update decides, and what it said comes true.

Accepted: the trip ends undone, or refused where nothing was done, whatever was on its way. Refused: it ends confirmed.
"""

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import Any

import pytest
from django.db import connection

from bookings import saga as booking
from ledger import crashpoints, models, turns
from tests import drives, psql
from tests.cases import trips
from tests.cases.trips import PAID, REFUNDED, TICKETED, Stage, Trip

ROUNDS, TRIPS_A_ROUND = 10, 20
MOMENTS = 130  # about as many gaps as a round of trips comes through
POINTS = [
    *("claim.before", "claim.after", "settle.before", "settle.after", "call.before", "call.after"),
    *("local.before", "local.after_handlers", "local.after", "promote.before", "promote.after"),
]


def cancel(trip: Trip) -> bool:
    """From a session of its own, as the API would."""
    accepted = psql.Thread(lambda: turns.cancel(trip.job_id, by="guest", reason="changed plans"))
    return accepted.result()


@contextmanager
def cancelled_before_the_end(trip: Trip) -> Iterator[list[bool]]:
    """The last receipt is in memory, and the statement that stores it together with the end is about to be sent."""
    said: list[bool] = []

    def wrapper(execute: Callable[..., Any], statement: str, params: Any, *rest: Any) -> Any:
        written = json.loads(params["jobs"]) if "INSERT INTO ledger_receipt" in statement else []
        if any(job["state"] == "confirmed" for job in written):
            said.append(cancel(trip))
        return execute(statement, params, *rest)

    with connection.execute_wrapper(wrapper):
        yield said


def test_before_it_was_claimed(stage: Stage) -> None:
    trip = stage.book()
    assert cancel(trip)
    drives.drive_all()
    assert (trip.state(), trip.requests(), stage.small.taken()) == ("refused", [], [0, 0])
    assert not cancel(trip)


@pytest.mark.parametrize("happens", [True, False])
def test_while_the_payment_is_on_the_wire(stage: Stage, *, happens: bool) -> None:
    """Its outcome is awaited first: undone if it happened, nothing to undo if not."""
    trip = stage.book()
    said: list[bool] = []
    declined = {"do": "refuse", "match": "capture"}
    stage.hold("capture") if happens else stage.rules(declined)

    def cancel_once(_point: str) -> None:
        sent = models.Attempt.objects.filter(job_id=trip.job_id, step=trips.CAPTURE)
        if not said and sent.exists():
            trip.await_request("capture")
            said.append(cancel(trip))
            if happens:
                stage.release()

    with crashpoints.armed("settle.before", cancel_once):
        drives.drive_all()
    assert said == [True]
    assert trip.outcomes() == (["confirmed"] if happens else ["refused"])
    assert trip.requests() == (["capture", "refund"] if happens else ["capture"])
    assert trip.effects() == ([PAID, REFUNDED] if happens else [])
    assert (trip.state(), stage.small.taken()) == ("compensated", [0, 0])
    trip.agree()


def test_between_the_last_receipt_and_the_end_of_a_trip_that_has_a_pivot(stage: Stage) -> None:
    trip = stage.book()
    with cancelled_before_the_end(trip) as said:
        drives.drive_all()
    assert said == [False]
    assert (trip.state(), trip.effects()) == ("confirmed", [PAID, TICKETED])
    assert not cancel(trip)
    assert (drives.drive_all(), trip.state()) == (0, "confirmed")
    assert trip.row().turned_by == ""
    trip.agree()


def test_between_the_last_receipt_and_the_end_of_a_trip_that_has_none(stage: Stage) -> None:
    """The receipt is stored, the end that was written with it is not."""
    with trips.variant(2) as definition:
        trip = stage.book(definition)
        with cancelled_before_the_end(trip) as said:
            drives.drive_all()
    assert said == [True]
    assert trip.outcomes() == ["confirmed"]
    assert (trip.state(), trip.effects()) == ("compensated", [PAID, REFUNDED])
    assert stage.small.taken() == [0, 0]
    trip.agree()


class Guests:
    """They cancel from a thread and a session of their own, each when so many gaps have been passed."""

    def __init__(self, moments: dict[Trip, int]) -> None:
        self.accepted: dict[Trip, bool] = {}
        self._left = sorted(moments, key=lambda trip: moments[trip])
        self._moments = moments
        self._passed, self._lock = 0, threading.Lock()
        self._wanted: SimpleQueue[Trip | None] = SimpleQueue()

    def pass_gap(self, _point: str) -> None:
        with self._lock:
            self._passed += 1
            while self._left and self._moments[self._left[0]] <= self._passed:
                self._wanted.put(self._left.pop(0))

    def leave(self) -> None:
        """Whoever has not cancelled yet does it now."""
        for trip in [*self._left, None]:
            self._wanted.put(trip)

    def work(self) -> None:
        while (trip := self._wanted.get(timeout=psql.WAIT_SECONDS)) is not None:
            said = turns.cancel(trip.job_id, by="guest", reason="changed plans")
            self.accepted[trip] = said


def race(stage: Stage, draw: random.Random, definitions: list[Any]) -> dict[Trip, bool]:
    """One round: many trips, each cancelled at a moment of its own while one worker drives them all."""
    booked = [stage.book(draw.choice(definitions)) for _ in range(TRIPS_A_ROUND)]
    guests = Guests({trip: draw.randint(0, MOMENTS) for trip in booked})
    thread = psql.Thread(guests.work)
    with ExitStack() as armed:
        for point in POINTS:
            armed.enter_context(crashpoints.armed(point, guests.pass_gap))
        drives.drive_all()
    guests.leave()
    thread.result()
    drives.drive_all()
    assert set(guests.accepted) == set(booked)
    return guests.accepted


@pytest.mark.timeout(120)
def test_at_two_hundred_random_moments_the_answer_comes_true(stage: Stage) -> None:
    draw, ends = random.Random(9), set()  # noqa: S311  a seed, not a secret
    with trips.variant(2) as without_pivot:
        for _ in range(ROUNDS):
            for trip, said in race(stage, draw, [booking.trip, without_pivot]).items():
                state, effects = trip.state(), trip.effects()
                ends.add((said, state, len(effects)))
                assert state in (("compensated", "refused") if said else ("confirmed",))
                assert trip.net() == (0 if said else trips.PRICE_MINOR)
                assert not (said and TICKETED in effects)
                trip.agree()
    confirmed = models.Job.objects.filter(state="confirmed").count()
    assert stage.small.taken() == [confirmed, confirmed]
    assert {(True, "refused", 0), (True, "compensated", 2), (False, "confirmed", 2)} <= ends

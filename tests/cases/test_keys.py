"""C40, C41: a key that the provider has forgotten is not sent again, and one with a stored error is never exchanged.

The provider of these tests would do it twice: it forgets its keys when told to, and then an old key is like a new one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from ledger import acts, crashpoints
from ledger.saga import Direction
from tests import drives, staff
from tests.cases import trips
from tests.cases.trips import BACKWARD, FORWARD, PAID, REFUNDED, TICKETED, Stage, Trip

LIFETIME = timedelta(minutes=10)  # of a key; the worker is back after an hour
DIRECTIONS = pytest.mark.parametrize("direction", [FORWARD, BACKWARD])
KIND = {FORWARD: "capture", BACKWARD: "refund"}
LOST = {"do": "drop_after"}
NO_LOOK_UP = {"do": "error_before", "match": "probe"}


@contextmanager
def out_for_an_hour(stage: Stage, direction: Direction) -> Iterator[Trip]:
    """The operation is applied, its reply is lost and so is its worker; the provider forgets its keys meanwhile."""

    def die(point: str) -> None:
        if KIND[direction] in dict(trip.effects()):
            raise crashpoints.CrashPointError(point)

    with trips.variant(key_lifetime=LIFETIME) as definition:
        trip = stage.book(definition)
        lost = {**LOST, "match": KIND[direction]}
        stage.rules(lost) if direction is FORWARD else stage.refuse_tickets(lost)
        armed = crashpoints.armed("settle.before", die)
        with armed, pytest.raises(crashpoints.CrashPointError):
            drives.drive_all()
        trip.lose_owner()
        drives.age_journal(trip.job_id)
        assert stage.sandbox.control("forget_keys", older_than_seconds=0)["forgotten"] > 0
        yield trip


def happened(direction: Direction) -> list[tuple[str, int | None]]:
    return [PAID, TICKETED] if direction is FORWARD else [PAID, REFUNDED]


@DIRECTIONS
def test_past_the_keys_lifetime_it_is_looked_up_and_not_sent_again(
    stage: Stage, direction: Direction
) -> None:
    with out_for_an_hour(stage, direction) as trip:
        stage.rules()
        drives.drive_all()
    assert trip.state() == ("confirmed" if direction is FORWARD else "compensated")
    assert trip.requests().count(KIND[direction]) == 1
    assert trip.requests().count("probe") == 1
    assert trip.effects() == happened(direction)
    trip.agree()


@DIRECTIONS
def test_where_no_look_up_answers_a_person_decides_and_cannot_send_it_again_either(
    stage: Stage, direction: Direction
) -> None:
    with out_for_an_hour(stage, direction) as trip:
        stage.rules(NO_LOOK_UP)
        drives.drive_all()
        assert trip.parked() == ("parked", "unknown_outcome")
        before = trips.snapshot(trip)
        with pytest.raises(acts.ActRefused, match="its key may have expired: ask instead"):
            staff.does(trip.job_id, "retry")
        trips.sweep()
        assert drives.drive_all() == 0
        assert trips.snapshot(trip) == before
        stage.rules()
        staff.does(trip.job_id, "ask")
        drives.drive_all()
    assert trip.state() == ("confirmed" if direction is FORWARD else "compensated")
    assert trip.requests().count(KIND[direction]) == 1
    assert trip.effects() == happened(direction)
    trip.agree()


def test_what_can_be_neither_looked_up_nor_sent_again_is_for_a_person(stage: Stage) -> None:
    mute = {"probe": None, "tombstone": None, "key_lifetime": LIFETIME}
    with trips.variant(payment={"parks_when_unknown": True}, **mute) as definition:
        trip = stage.book(definition)
        stage.rules({"do": "error_after", "match": "capture"})
        drives.drive_all()
        assert set(trip.requests()) == {"capture"}  # within its lifetime, a bounded number of times
        assert trip.parked() == ("parked", "unknown_outcome")
        drives.age_journal(trip.job_id)
        before = trips.snapshot(trip)
        with pytest.raises(acts.ActRefused, match="its key may have expired"):
            staff.does(trip.job_id, "retry")
        assert drives.drive_all() == 0
    assert trips.snapshot(trip) == before
    assert trip.effects() == [PAID]


def stored_error(*, applied: bool) -> dict[str, object]:
    return {"do": "stored_500", "match": "capture", "applied": applied}


def test_a_stored_error_of_what_did_not_happen_is_tried_a_bounded_number_of_times_and_goes_back(
    stage: Stage,
) -> None:
    with trips.variant(payment={"attempts": 3}) as definition:
        trip = stage.book(definition)
        stage.rules(stored_error(applied=False))
        drives.drive_all()
        assert (trip.state(), trip.row().direction) == ("waiting", "forward")
        assert (trip.outcomes(), trip.reservation().state) == (["unknown"] * 3, "held")
        trip.an_hour_later()  # when nothing can land any more
    assert trip.requests() == ["capture", "probe"] * 3 + ["probe"]
    assert trip.final().evidence["reason"] == "not_landed"
    assert (trip.state(), trip.effects(), stage.small.taken()) == ("compensated", [], [0, 0])
    trip.agree()


@pytest.mark.parametrize("look_ups_fail", [0, 5])
def test_a_stored_error_of_what_did_happen_is_found_under_its_one_key(
    stage: Stage, look_ups_fail: int
) -> None:
    trip = stage.book()
    stage.rules(stored_error(applied=True), {**NO_LOOK_UP, "times": look_ups_fail})
    drives.drive_all()
    assert trip.state() == "confirmed"
    assert trip.requests().count("capture") == (2 if look_ups_fail else 1)
    assert trip.effects() == [PAID, TICKETED]
    trip.agree()

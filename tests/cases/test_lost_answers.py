"""C01, C04: a payment whose answer says nothing is unknown: not failed, not undone, not made again under another key."""

import json
from typing import Any

import pytest

from ledger import crashpoints
from tests import drives
from tests.cases import trips
from tests.cases.trips import PAID, TICKETED, Stage, Trip

LOOK_UP_FAILS = {"do": "error_before", "match": "probe"}
CALL_SECONDS = 0.5


def garbage(text: str) -> dict[str, Any]:
    return {"do": "garbage", "text": text}


def other_status(trip: Trip) -> dict[str, Any]:
    """The right answer in every member but one: a status that nobody has heard of."""
    answer = {"id": "cap_1", "operation_id": trip.operation(), "status": "settling"}
    money = {"amount_minor": trips.PRICE_MINOR, "currency": "EUR", "subject": trip.subject}
    return garbage(json.dumps({**answer, **money}))


# What became of the call, and whether it happened.
ENDINGS: dict[str, tuple[Any, bool]] = {
    "reset": ({"do": "drop_after"}, True),
    "reset, nothing happened": ({"do": "drop_before"}, False),
    "502": ({"do": "error_after", "status": 502}, True),
    "empty body": (garbage(""), True),
    "invalid JSON": (garbage('{"status": "captured"'), True),
    "unknown status": (other_status, True),
    "read timeout": ({"do": "drip", "interval": 5.0}, True),
}


def rule_of(ending: str, trip: Trip) -> dict[str, Any]:
    rule = ENDINGS[ending][0]
    return {**(rule(trip) if callable(rule) else rule), "match": "capture"}


def assert_in_doubt(stage: Stage, trip: Trip, look_ups: int) -> None:
    """It waits, going forward, in the class that says so; nothing is undone and nothing goes on."""
    row = trip.row()
    assert (row.state, row.lane, row.direction) == ("waiting", "forward", "forward")
    assert trips.classes() == {"unknown_outcome": 1}
    assert trip.outcomes() == ["unknown"]
    assert trip.requests() == ["capture"] + ["probe"] * look_ups
    assert (trip.reservation().state, stage.small.taken()) == ("held", [1, 1])


@pytest.mark.parametrize("ending", ENDINGS)
def test_it_waits_in_doubt_until_a_look_up_answers(
    stage: Stage, settings: Any, ending: str
) -> None:
    settings.BACKOFF_SECONDS = settings.BACKOFF_SECONDS_MAX = 60.0
    with trips.variant(call_seconds=CALL_SECONDS) as definition:
        trip = stage.book(definition)
        stage.rules({**rule_of(ending, trip), "times": 1}, {**LOOK_UP_FAILS, "times": 3})
        drives.drive_all()
        for look_ups in (1, 2, 3):
            assert_in_doubt(stage, trip, look_ups)
            trip.an_hour_later()
    sent_again = [] if ENDINGS[ending][1] else ["capture"]
    assert trip.requests() == ["capture", *["probe"] * 4, *sent_again, "ticket"]
    assert (trip.state(), trips.classes()) == ("confirmed", {"confirmed": 1})
    assert trip.effects() == [PAID, TICKETED]
    trip.agree()


@pytest.mark.parametrize("ending", [e for e in ENDINGS if e != "read timeout"])
def test_it_parks_once_where_no_look_up_ever_answers(stage: Stage, ending: str) -> None:
    with trips.variant(payment={"attempts": 3}) as definition:
        trip = stage.book(definition)
        stage.rules(rule_of(ending, trip), LOOK_UP_FAILS)
        drives.drive_all()
        assert trip.parked() == ("parked", "unknown_outcome")
        before = trips.snapshot(trip)
        for _ in range(3):
            trips.sweep()
            drives.drive_all()
    assert trips.snapshot(trip) == before
    assert (trip.requests().count("capture"), trip.requests().count("probe")) == (3, 9)
    assert trip.effects() == ([PAID] if ENDINGS[ending][1] else [])
    assert trips.classes() == {"unknown_outcome": 1}
    assert (trip.reservation().state, stage.small.taken()) == ("held", [1, 1])


def lose_the_reply(stage: Stage, _trip: Trip) -> None:
    stage.rules({"do": "drop_after", "match": "capture", "times": 1})
    drives.drive_all()


def answer_too_late(stage: Stage, trip: Trip) -> None:
    """It is on its way for longer than the call may take, and lands after the same was sent again."""
    stage.hold("capture")
    drives.drive_all()
    assert trip.requests().count("capture") == 2
    stage.release()


def lose_the_worker(stage: Stage, trip: Trip) -> None:
    """The reply is lost with its worker, and look-ups fail: the next owner can only send the same again."""

    def die(point: str) -> None:
        if trip.effects():
            raise crashpoints.CrashPointError(point)

    stage.rules(LOOK_UP_FAILS)
    armed = crashpoints.armed("settle.before", die)
    with armed, pytest.raises(crashpoints.CrashPointError):
        drives.drive_all()
    trip.lose_owner()
    drives.drive_all()
    assert trip.requests().count("capture") == 2


@pytest.mark.parametrize("how", [lose_the_reply, answer_too_late, lose_the_worker])
def test_every_attempt_carries_one_key_and_the_receipt_is_that_of_the_one_capture(
    stage: Stage, how: Any
) -> None:
    with trips.variant(call_seconds=CALL_SECONDS) as definition:
        trip = stage.book(definition)
        how(stage, trip)
    assert trip.state() == "confirmed"
    captures = stage.sandbox.effects(trip.operation())
    assert [capture["id"] for capture in captures] == [trip.final().evidence["ref"]]
    assert trip.effects() == [PAID, TICKETED]
    trip.agree()

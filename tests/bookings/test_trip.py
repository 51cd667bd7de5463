"""The trip as data: what happens in which order, what undoes it, and what each operation is told."""

import dataclasses

from bookings import rooms, saga
from ledger import saga as ledger_saga
from ledger.saga import LOCAL, Direction, Done, NotUndoable

REQUEST = saga.TripRequest(
    hotel="H",
    room_type="R",
    arrival="2030-01-01",
    nights=2,
    amount_minor=20_000,
    currency="EUR",
    account="agent",
    subject="booking",
    guest="Ada",
)
DONE = {
    "reserve_room": Done("reservation:1", {"holder": "job:reserve_room:forward"}),
    "capture_payment": Done("cap_1", {}),
    "secure_room": Done("reservation:1", {}),
}


def test_the_trip_is_registered_under_its_name_and_version() -> None:
    assert ledger_saga.find("bookings.trip", 1) is saga.trip


def test_the_ticket_comes_last_and_is_the_pivot() -> None:
    names = [step.name for step in saga.trip.steps]
    assert names == ["reserve_room", "capture_payment", "secure_room", "issue_ticket"]
    assert saga.trip.pivot_index() == 3


def test_every_step_before_the_pivot_has_an_undo() -> None:
    undos = [step.undo for step in saga.trip.steps]
    assert all(callable(undo) for undo in undos[:3])
    assert isinstance(undos[3], NotUndoable)


def test_rooms_are_local_and_say_what_they_lock() -> None:
    local = [step for step in saga.trip.steps if step.effect is LOCAL]
    assert [step.name for step in local] == ["reserve_room", "secure_room"]
    for step in local:
        arguments = step.arguments_of(Direction.FORWARD)(REQUEST, DONE)
        assert rooms.NIGHTS is step.rows
        assert list(rooms.NIGHTS.keys(arguments)) == [
            ("H", "R", "2030-01-01"),
            ("H", "R", "2030-01-02"),
        ]


def test_the_hold_keeps_its_holder_throughout_the_trip() -> None:
    for name, direction in (
        ("reserve_room", Direction.BACKWARD),
        ("secure_room", Direction.FORWARD),
        ("secure_room", Direction.BACKWARD),
    ):
        step = saga.trip.step(name)
        assert step is not None
        assert step.arguments_of(direction)(REQUEST, DONE)["holder"] == "job:reserve_room:forward"


def test_the_refund_is_of_the_capture_and_of_all_of_it() -> None:
    step = saga.trip.step("capture_payment")
    assert step is not None
    refund = step.arguments_of(Direction.BACKWARD)(REQUEST, DONE)
    assert refund == {
        "capture": "cap_1",
        "amount_minor": 20_000,
        "currency": "EUR",
        "subject": "booking",
    }


def test_the_input_is_plain_text_and_integers() -> None:
    assert {field.type for field in dataclasses.fields(saga.TripRequest)} <= {
        str,
        int,
        "str",
        "int",
    }
    assert saga.trip.input(**ledger_saga.vars_of(REQUEST)) == REQUEST

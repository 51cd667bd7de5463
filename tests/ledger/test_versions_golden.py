"""Old histories replay: from every stored prefix, this build decides what the build that wrote it decided."""

from dataclasses import replace

import pytest

from bookings.saga import trip
from ledger import checkpoints, outcomes, saga
from tests import drives, factories, golden, sagas

NAMES = sorted(path.stem for path in golden.FILES.glob("*.json"))


def test_the_files_cover_what_a_trip_can_meet() -> None:
    assert NAMES == [
        "cancelled",
        "compensated",
        "confirmed",
        "parked_refund",
        "reply_lost",
        "throttled",
    ]
    formats = {c["format"] for name in NAMES for c in golden.load(name)["checkpoints"]}
    assert formats == set(checkpoints.READABLE)


@pytest.mark.parametrize("name", NAMES)
def test_every_prefix_of_an_old_history_is_decided_as_it_was(name: str) -> None:
    stored = golden.load(name)
    definition = saga.find(stored["saga"], stored["version"])
    assert definition is not None, "a version that was released and may be in flight is registered"
    assert golden.replay(stored, definition) == stored["next"]


@pytest.mark.parametrize("name", NAMES)
def test_every_old_checkpoint_is_read_and_agrees_with_its_journal(name: str) -> None:
    stored = golden.load(name)
    assert stored["checkpoints"]
    for c in stored["checkpoints"]:
        assert checkpoints.outcomes_of(c["format"], c["data"]) == golden.settled(stored, c["seq"])


def test_a_definition_that_was_edited_in_place_is_found() -> None:
    """Control: a step renamed, one moved, arguments that differ: each is another next action for some prefix."""
    stored = golden.load("confirmed")
    room, payment, secure, ticket = trip.steps

    def more(request: object, done: object) -> dict[str, object]:
        return {**payment.arguments(request, done), "amount_minor": 1}  # type: ignore[arg-type]

    renamed = [room, replace(payment, name="charge"), secure, ticket]
    for steps in (
        renamed,
        [room, secure, payment, ticket],
        [room, replace(payment, arguments=more), secure, ticket],
    ):
        edited = replace(trip, steps=steps)
        try:
            assert golden.replay(stored, edited) != stored["next"]
        except (outcomes.OperationConflict, KeyError):
            continue  # found, too: it cannot be planned any more


@pytest.mark.usefixtures("worker_role")
def test_a_history_recorded_now_replays() -> None:
    """The recorder writes what the engine does: the next action after each commit is what the next commit began."""
    world = sagas.World()
    world.says("ticket:forward", lambda _: outcomes.Refused("sold out"))
    with sagas.trip(world) as definition:
        job = factories.submit(definition)
        drives.drive_all()
        stored = golden.record(job)
        assert golden.replay(stored, definition) == stored["next"]
    sent = [n[2:4] for n in stored["next"] if n[1] == "send" and n[4] == 1]
    assert list(dict.fromkeys(map(tuple, sent))) == [
        (step, way) for step, way in (name.split(":") for name in world.called)
    ]
    assert stored["next"][-1] == ["backward", "finish", "compensated"]

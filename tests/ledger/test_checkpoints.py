"""A checkpoint is read in every format that a build claims to read, and never guessed at in another."""

from typing import Any

import pytest
from pytest_django.fixtures import Settings

from ledger import checkpoints, engine, models, operations, outcomes, resolutions, selectors, shares
from ledger.acts import Asked
from ledger.saga import Direction
from tests import claims, drives, factories, psql, sagas, staff

SETTLED = {"room:forward": "confirmed", "payment:forward": "refused"}
WRITTEN: dict[int, dict[str, Any]] = {
    1: {"state": "running", "direction": "forward", "settled": SETTLED},
    2: {
        "state": "running",
        "direction": "forward",
        "pivot_sent": False,
        "settled": {
            "room:forward": {"outcome": "confirmed", "ref": "hold-1"},
            "payment:forward": {"outcome": "refused", "ref": None},
        },
    },
}
NEXT = checkpoints.CURRENT + 1


def ops() -> dict[operations.Key, operations.Operation]:
    room = claims.receipt("confirmed", "room", ref="hold-1")
    payment = claims.receipt("refused", "payment")
    found = {}
    for r in (room, payment):
        operation = operations.Operation()
        operation.final = operations.Receipt(r.step, r.direction, 1, r.outcome, r.evidence, None)  # type: ignore[arg-type]
        found[r.step, r.direction] = operation
    found["ticket", Direction.FORWARD] = operations.Operation()
    return found


@pytest.mark.parametrize("written", checkpoints.READABLE)
def test_each_format_is_written_and_read_back(written: int) -> None:
    made = checkpoints.make(
        written, ops(), state="running", direction=Direction.FORWARD, pivot_sent=False
    )
    assert made == WRITTEN[written]
    assert checkpoints.outcomes_of(written, made) == SETTLED


def test_an_older_format_is_cast_up_and_says_what_it_does_not_know() -> None:
    assert checkpoints.read(1, WRITTEN[1]) == {
        "state": "running",
        "direction": "forward",
        "pivot_sent": None,
        "settled": {name: {"outcome": o, "ref": None} for name, o in SETTLED.items()},
    }
    assert checkpoints.read(2, WRITTEN[2]) == WRITTEN[2]


@pytest.mark.parametrize("written", [0, NEXT])
def test_another_format_is_refused_by_name(written: int) -> None:
    with pytest.raises(
        checkpoints.UnreadableCheckpoint,
        match=f"checkpoint format {written}: this build reads 1 to 2",
    ):
        checkpoints.read(written, WRITTEN[2])
    with pytest.raises(checkpoints.UnreadableCheckpoint):
        checkpoints.make(
            written, ops(), state="running", direction=Direction.FORWARD, pivot_sent=False
        )


@pytest.mark.usefixtures("worker_role")
@pytest.mark.parametrize("written", checkpoints.READABLE)
def test_a_build_writes_the_format_that_it_is_told_to(settings: Settings, written: int) -> None:
    settings.CHECKPOINT_FORMAT = written
    with sagas.trip(sagas.World()) as trip:
        job = factories.submit(trip)
        drives.drive_all()
    formats = models.Checkpoint.objects.filter(job_id=job).values_list("format", flat=True)
    assert set(formats) == {written}
    assert models.Job.objects.get(id=job).checkpoint_format == written
    assert selectors.checkpoints([job])[job] == {
        f"{step}:forward": "confirmed" for step in ("room", "payment", "ticket")
    }


@pytest.mark.usefixtures("worker_role")
def test_a_job_goes_on_from_either_format_to_the_other(settings: Settings) -> None:
    """There and back: forward by a build that writes the new one, backward by one that writes the old."""
    world = sagas.World()
    world.says("ticket:forward", lambda _: outcomes.Refused("sold out"))
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        settings.CHECKPOINT_FORMAT = 2
        while engine.drive("forward"):
            pass
        assert models.Job.objects.get(id=job).checkpoint_format == 2
        settings.CHECKPOINT_FORMAT = 1
        drives.drive_all()
    stored = models.Checkpoint.objects.filter(job_id=job).order_by("id")
    assert list(stored.values_list("format", flat=True)) == [2, 2, 2, 1, 1]
    assert models.Job.objects.get(id=job).checkpoint_format == 1
    assert drives.state(job) == "compensated"


@pytest.mark.usefixtures("worker_role")
def test_a_job_in_a_format_of_the_next_build_is_left_alone() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        shares.promote("forward")
        with psql.connected("worker") as session:
            session.execute(
                "UPDATE ledger_job SET acting_fence = fence, checkpoint_format = %s", [NEXT]
            )
        before = claims.snapshot(job)
        assert drives.drive_all() == 0
        assert claims.snapshot(job) == before
        assert world.called == []


@pytest.mark.usefixtures("database")
def test_a_job_closed_by_hand_ends_in_the_format_that_is_written(settings: Settings) -> None:
    settings.CHECKPOINT_FORMAT = 1
    world = sagas.World()
    world.says("ticket:forward", lambda _: outcomes.Refused("sold out"))
    world.says("payment:backward", lambda _: outcomes.Refused("disputed"))
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        drives.drive_all()
        assert drives.state(job) == "parked"
        settings.CHECKPOINT_FORMAT = 2
        for name in ("first", "second"):
            asked = Asked(act="close", by=name, reason="settled by hand with the bank")
            resolutions.act(job, asked, by=staff.member(name))
    last = models.Checkpoint.objects.filter(job_id=job).latest("id")
    assert (last.format, models.Job.objects.get(id=job).checkpoint_format) == (2, 2)
    assert last.data["settled"]["payment:backward"] == {"outcome": "refused", "ref": None}

"""`manage.py restart`: after an outage, stranded jobs are runnable now, and whoever waits is told what comes next.

It runs no job and asks no provider: the world's list of calls says so. What goes on is the next owner's, from the journal.
"""

import dataclasses
import io
import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from ledger import outcomes, saga, sightings, sql, tickets
from recovery import restart
from tests import claims, drives, factories, sagas
from tests.sagas import World

pytestmark = pytest.mark.usefixtures("worker_role")
STALLED = "--all-stalled"


@pytest.fixture(autouse=True)
def no_backoff(settings: Settings) -> None:
    settings.BACKOFF_SECONDS = 0.0


def run(*arguments: object) -> dict[str, Any]:
    out = io.StringIO()
    call_command("restart", *map(str, arguments), "--json", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def refused(*arguments: object) -> tuple[str, str]:
    """(what it printed, why it ended with status 1)."""
    out = io.StringIO()
    with pytest.raises(CommandError) as error:
        call_command("restart", *map(str, arguments), stdout=out)
    return out.getvalue(), str(error.value)


def one(*arguments: object) -> dict[str, Any]:
    [job] = run(*arguments)["jobs"]
    found: dict[str, Any] = job
    return found


def died_after_a_send(trip: saga.Saga) -> UUID:
    """A job whose owner is gone with the machine: the payment was sent, and nobody heard the answer."""
    claimed = claims.running(trip)
    room = [claims.receipt(step="room", ref="ref")]
    claims.settle(claims.write(claimed, attempts=[claims.attempt("room")]))
    claims.settle(claims.write(dataclasses.replace(claimed, seq=1), receipts=room))
    claims.settle(
        claims.write(dataclasses.replace(claimed, seq=2), attempts=[claims.attempt("payment")])
    )
    drives.expire_lease(claimed.id)
    return claimed.id


def test_what_parks_after_its_evidence_is_recorded_does_not_go_on() -> None:
    world = World()
    with sagas.trip(world) as trip:
        id_ = died_after_a_send(trip)
        claims.turn(id_)
        refused_undo(id_)
        out, why = refused(id_)
    assert "records that payment was refused, as was seen, then " in out
    assert "parks: compensation_failed" in out
    assert why == "1 of these jobs cannot go on without a person"


def test_the_last_checkpoint_is_told() -> None:
    world = World()
    world.says("payment:forward", sagas.raising(outcomes.Throttled(timedelta(hours=1))))
    with sagas.trip(world) as trip:
        id_ = factories.submit(trip)
        drives.drive_all()
        assert one(id_)["checkpoint"] == {"room:forward": "confirmed"}


def refused_undo(job: UUID) -> None:
    """What was seen: the payment was refused; and the undo of the room was refused before."""
    late = sightings.NewSighting(job, "payment", saga.Direction.FORWARD, 1, "late", "refused", {})
    undo = sightings.NewSighting(job, "room", saga.Direction.BACKWARD, 1, "late", "refused", {})
    sightings.record([late, undo])


@pytest.mark.parametrize("asked", ["by id", STALLED])
def test_a_job_in_doubt_goes_on_with_a_question_and_has_one_effect(asked: str) -> None:
    world = World()
    with sagas.trip(world, probe=True) as trip:
        id_ = died_after_a_send(trip)
        told = one(id_ if asked == "by id" else STALLED)
        assert told["found"].startswith("under a lease that ended")
        assert (told["state"], told["goes_on"]) == ("queued", True)
        assert told["next"] == "asks the provider about payment"
        assert world.called == []
        drives.drive_all()
    assert drives.state(id_) == "confirmed"
    assert world.called == ["payment:forward:probe", "ticket:forward"]


def test_without_a_probe_the_same_id_is_sent_again() -> None:
    world = World()
    with sagas.trip(world) as trip:
        id_ = died_after_a_send(trip)
        assert one(id_)["next"] == "sends payment again, same id"
        assert world.called == []
        drives.drive_all()
    assert drives.state(id_) == "confirmed"
    assert [call.operation_id for call in world.calls] == [
        f"{id_}:payment:forward",
        f"{id_}:ticket:forward",
    ]


def test_what_can_be_neither_asked_nor_sent_again_is_not_repeated() -> None:
    world = World()
    with sagas.trip(world, effect=world.effect("any", key_lifetime=None)) as trip:
        id_ = died_after_a_send(trip)
        printed, why = refused(id_)
        assert f"next: parks: unknown_outcome: {id_}:payment:forward" in printed
        assert why == "1 of these jobs cannot go on without a person"
        drives.drive_all()
        assert (drives.state(id_), world.called) == ("parked", [])
        before = claims.snapshot(id_)
        printed, why = refused(id_)
        assert f"needs a person: manage.py resolve {id_}" in printed
        assert why == "1 of these jobs cannot go on without a person"
    assert claims.snapshot(id_) == before
    assert world.called == []


def test_a_job_under_a_live_lease_is_left_alone() -> None:
    with sagas.trip(World()) as trip:
        claimed = claims.running(trip)
        before = claims.snapshot(claimed.id)
        told = one(claimed.id)
        assert told["found"].startswith("under a live lease")
        assert (told["state"], told["next"]) == ("running", "its owner goes on")
        assert run(STALLED)["jobs"] == []
        assert claims.snapshot(claimed.id) == before


def test_a_due_time_is_kept() -> None:
    world = World()
    with sagas.trip(world) as trip:
        world.says("room:forward", sagas.raising(outcomes.Throttled(timedelta(hours=1))))
        id_ = factories.submit(trip)
        drives.drive_all()
        before = claims.snapshot(id_)
        told = one(id_)
        assert (told["found"], told["state"]) == ("waiting, not due yet", "waiting")
        assert told["next"].startswith("waits until ")
        assert told["next"].endswith(", then sends room again, same id")
        assert run(STALLED)["jobs"] == []
    assert claims.snapshot(id_) == before


def test_work_past_due_is_ranked_and_rung() -> None:
    with sagas.trip(World()) as trip:
        id_ = factories.submit(trip)
        found = run(STALLED)
        assert (found["reclaimed"], found["promoted"], found["rung"]) == (0, 1, 1)
        [told] = found["jobs"]
        assert told["found"].startswith("waiting, due")
        assert (told["state"], told["next"]) == ("queued", "sends room")
        drives.drive_all()
        assert one(id_)["next"] == "nothing is left to do"
        assert one(id_)["found"] == "ended: confirmed"


def test_a_job_on_its_way_back_says_so() -> None:
    world = World()
    with sagas.trip(world) as trip:
        id_ = died_after_a_send(trip)
        claims.turn(id_)
        assert "next: parks: unknown_outcome" in refused(id_)[0]
    with sagas.trip(world, probe=True) as trip:
        id_ = died_after_a_send(trip)
        claims.turn(id_)
        assert one(id_)["next"] == "asks the provider about payment"
        drives.drive_all()
    assert drives.state(id_) == "compensated"
    assert world.called == ["payment:forward:probe", "payment:backward", "room:backward"]


def test_a_version_that_this_build_does_not_know_is_made_runnable_for_one_that_does() -> None:
    with sagas.trip(World()) as trip:
        id_ = died_after_a_send(trip)
    told = one(id_)
    assert told["state"] == "queued"
    assert told["next"] == f"waits for a build that knows {trip.name} version 1"


def test_a_job_that_cannot_be_planned_is_said_to_park_and_does() -> None:
    def broken(_request: Any, _done: Any) -> dict[str, Any]:
        raise KeyError("amount")

    world = World()
    with sagas.trip(world, arguments=broken) as trip:
        id_ = factories.submit(trip)
        assert "cannot be planned (KeyError): the engine will park it" in refused(id_)[0]
        drives.drive_all()
    assert (drives.state(id_), world.called) == ("parked", [])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "name at least one JOB"),
        (["not-an-id"], "a UUID"),
        ([str(uuid4()), STALLED], "name at least one JOB"),
    ],
)
def test_what_names_no_job_is_refused(arguments: list[str], why: str) -> None:
    assert why in refused(*arguments)[1]


def test_an_unknown_id_is_refused_and_nothing_is_done_for_the_others() -> None:
    with sagas.trip(World()) as trip:
        id_ = died_after_a_send(trip)
        unknown = uuid4()
        before = claims.snapshot(id_)
        assert refused(id_, unknown) == ("", f"no such job: {unknown}")
        assert claims.snapshot(id_) == before


def test_the_list_is_bounded_and_the_work_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "LISTED_MAX", 2)
    with sagas.trip(World()) as trip:
        for _ in range(3):
            factories.submit(trip)
        found = run(STALLED)
    assert (len(found["jobs"]), found["is_cut"], found["promoted"]) == (2, True, 3)
    assert sql.fetch("SELECT DISTINCT state FROM ledger_job") == [("queued",)]


def test_twice_is_harmless() -> None:
    world = World()
    with sagas.trip(world, probe=True) as trip:
        id_ = died_after_a_send(trip)
        assert run(id_)["reclaimed"] == 1
        before = claims.snapshot(id_)
        assert run(id_)["reclaimed"] == 0
        assert claims.snapshot(id_) == before
        drives.drive_all()
    assert world.times("payment:forward") == 0


def test_a_broker_that_is_away_fails_nothing(settings: Settings) -> None:
    settings.BROKER_URL = "redis://127.0.0.1:1/0"
    tickets._new_bell()  # with no connection of before
    with sagas.trip(World(), probe=True) as trip:
        id_ = died_after_a_send(trip)
        told = one(id_)
        drives.drive_all()
    tickets._new_bell()
    assert told["state"] == "queued"
    assert drives.state(id_) == "confirmed"


def test_the_text_names_the_job_what_was_found_and_what_comes_next() -> None:
    out = io.StringIO()
    with sagas.trip(World(), probe=True) as trip:
        id_ = died_after_a_send(trip)
        call_command("restart", STALLED, stdout=out)
    first, settled, second, last = out.getvalue().splitlines()
    assert settled == "    settled: nothing"
    assert first.startswith(f"{id_}  under a lease that ended ")
    assert first.endswith(" ago; now queued")
    assert second == "    next: asks the provider about payment"
    assert last == "1 leases taken back, 0 jobs ranked, 1 lanes rung"

"""Versions of one saga side by side: each job is driven, and undone, by the definition that it began with."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ledger import models, outcomes, saga, shares
from ledger.states import JobState
from tests import claims, drives, factories, sagas
from tests.sagas import World

pytestmark = pytest.mark.usefixtures("worker_role")
NAME = "test.versions"


def version(number: int, world: World, names: list[str], pivot: str = "ticket") -> saga.Saga:
    """Of its own world, so that it is seen which definition called."""
    last: dict[str, Any] = {"undo": saga.NotUndoable("last step"), "pivot": True}
    steps = [sagas.step(world, name, **(last if name == pivot else {})) for name in names]
    return saga.Saga(NAME, version=number, steps=steps)


OLD = ["room", "payment", "extras", "ticket"]
NEW = ["insurance", "room", "charge", "ticket"]  # one inserted first, one renamed, one removed


@contextmanager
def both() -> Iterator[tuple[World, saga.Saga, World, saga.Saga]]:
    old, new = World(), World()
    with (
        sagas.registered(version(1, old, OLD)) as one,
        sagas.registered(version(2, new, NEW)) as two,
    ):
        yield old, one, new, two


def forward(names: list[str]) -> list[str]:
    return [f"{name}:forward" for name in names]


def begun(definition: saga.Saga, count: int = 10) -> list[UUID]:
    """Jobs with their first step done by an owner that let go of them: they wait."""
    first = definition.steps[0].name
    jobs = []
    for _ in range(count):
        claimed = claims.running(definition)
        claims.settle(claims.write(claimed, attempts=[claims.attempt(first)]))
        rest: dict[str, Any] = {
            "receipts": [claims.receipt(step=first, ref="ref")],
            "state": JobState.WAITING,
        }
        claims.settle(claims.write(replace(claimed, seq=1), delay_seconds=60.0, **rest))
        jobs.append(claimed.id)
    assert {drives.state(job) for job in jobs} == {"waiting"}
    return jobs


def go_on(jobs: list[UUID]) -> None:
    for job in jobs:
        drives.make_due(job)
    drives.drive_all()


def test_jobs_of_both_versions_end_by_their_own_definition() -> None:
    with both() as (old, one, new, two):
        first, second = factories.submit(one), factories.submit(two)
        drives.drive_all()
    assert (drives.state(first), drives.state(second)) == ("confirmed", "confirmed")
    assert (old.called, new.called) == (forward(OLD), forward(NEW))


def test_a_deploy_under_jobs_in_flight_and_back_again() -> None:
    """The old build begins, one that knows both goes on, and the old one ends what is left of the old version."""
    old, new = World(), World()
    one, two = version(1, old, OLD), version(2, new, NEW)
    with sagas.registered(one):
        some, others = begun(one), begun(one)
    with sagas.registered(one), sagas.registered(two):
        later = factories.submit(two)
        go_on(some)
        left = factories.submit(two)  # and is not begun before the way back
    with sagas.registered(one):
        go_on(others)
    assert {drives.state(job) for job in (*some, *others, later)} == {"confirmed"}
    assert [old.times(name) for name in forward(OLD)] == [0, 20, 20, 20]
    assert new.called == forward(NEW)
    assert drives.state(left) == "queued"


def test_what_is_undone_is_undone_by_the_definition_that_did_it() -> None:
    with both() as (old, one, new, _):
        old.says("ticket:forward", lambda _: outcomes.Refused("sold out"))
        job = factories.submit(one)
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert old.called[-3:] == ["extras:backward", "payment:backward", "room:backward"]
    assert new.called == []


def test_a_job_of_a_version_that_no_build_knows_is_left_alone() -> None:
    old, new = World(), World()
    two = version(2, new, NEW)
    with sagas.registered(two):
        job = factories.submit(two)
    with sagas.registered(version(1, old, OLD)):
        shares.promote("forward")
        before = claims.snapshot(job)
        assert drives.drive_all() == 0
        assert claims.snapshot(job) == before
    assert (old.called, new.called) == ([], [])
    with sagas.registered(two):
        drives.drive_all()
    assert drives.state(job) == "confirmed"


@pytest.mark.parametrize(
    ("edited", "called"),
    [
        (["insurance", *OLD], ["insurance", "payment", "extras", "ticket"]),
        (["payment", "extras", "room", "ticket"], ["payment", "extras", "ticket"]),
    ],
    ids=["one inserted first", "one moved"],
)
def test_what_is_stored_belongs_to_a_name_and_not_to_a_place(
    edited: list[str], called: list[str]
) -> None:
    """In a version edited in place: nothing that was done is done again, and no step is taken for another."""
    world = World()
    with sagas.registered(version(1, World(), OLD)) as one:
        (job,) = begun(one, 1)
    steps = [
        replace(step, arguments=refs) if step.name != "room" else step
        for step in version(1, world, edited).steps
    ]
    with sagas.registered(saga.Saga(NAME, version=1, steps=steps)):
        go_on([job])
    assert (drives.state(job), world.called) == ("confirmed", forward(called))
    assert world.calls[0].arguments == {"room": "ref"}
    assert set(world.calls[-1].arguments) == {"room", *called[:-1]}


def refs(_request: object, done: Mapping[str, saga.Done]) -> dict[str, Any]:
    return {name: of.ref for name, of in done.items()}


@pytest.mark.parametrize("first", [[], ["suite"]], ids=["gone", "renamed"])
def test_a_definition_edited_in_place_parks_its_jobs_and_sends_nothing(first: list[str]) -> None:
    """A step that the journal speaks of is gone from the version: nobody can say what would undo it."""
    old, edited = World(), World()
    one = version(1, old, OLD)
    with sagas.registered(one):
        job = begun(one)[0]
    with sagas.registered(version(1, edited, [*first, "payment", "ticket"])):
        go_on([job])
    found = models.Job.objects.get(id=job)
    assert (found.state, found.parked_reason) == ("parked", "unsupported_version")
    assert found.parked_detail == "room: the journal has a step this saga lacks"
    assert edited.called == []

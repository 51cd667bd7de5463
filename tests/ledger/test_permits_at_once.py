"""How many calls of a provider are under way, in all processes together; and what gives a place back."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger import calls, crashpoints, engine, models, outcomes, saga
from tests import drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")


class Counted:
    """A world that knows how many calls are inside it; they stay until as many came as may, or for a moment."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self._lock, self._full = threading.Lock(), threading.Event()

    def visit(self, call: saga.Call) -> outcomes.Sighted:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self._full.wait(0.03)
        with self._lock:
            self.inside -= 1
        return sagas.confirm(call)


@pytest.fixture
def world() -> sagas.World:
    return sagas.World()


@pytest.fixture
def errand(world: sagas.World) -> Iterator[saga.Saga]:
    with sagas.registered(
        saga.Saga("test.errand", version=1, steps=[sagas.step(world, "post")])
    ) as definition:
        yield definition


def limit(**limits: Any) -> None:
    models.Provider.objects.update_or_create(name="world", defaults=limits)


def submit(errand: saga.Saga, count: int) -> list[UUID]:
    tenant = factories.TenantFactory.create()
    return [factories.submit(errand, tenant=tenant) for _ in range(count)]


def drive_to_the_end(jobs: list[UUID]) -> None:
    for _ in range(50):
        for job in jobs:
            drives.make_due(job)
        drives.drive_all()
        if all(drives.state(job) == "confirmed" for job in jobs):
            return
    raise AssertionError([drives.state(job) for job in jobs])


def test_all_processes_together_never_have_more_calls_under_way(
    world: sagas.World, errand: saga.Saga
) -> None:
    limit(concurrency=5)
    jobs, inside = submit(errand, 40), Counted()
    world.says("post:forward", *[inside.visit] * 40)
    for _ in range(3):
        psql.together(4, lambda _n: drives.drive_alone("forward"))
        for job in jobs:
            drives.make_due(job)
    drive_to_the_end(jobs)
    assert inside.most == 4  # of five, one is the compensation lane's
    assert world.times("post:forward") == 40


def stranded(errand: saga.Saga) -> UUID:
    """A job whose process took a permit, and perhaps sent, and is heard of no more."""
    (job,) = submit(errand, 1)
    run = engine.Run("forward", pool=calls.Pool(0))
    run._pool.free = lambda: 1  # type: ignore[method-assign]
    run._pool.place = lambda placed: None  # type: ignore[method-assign]
    run.claim()
    run.settle()
    assert models.Attempt.objects.filter(job_id=job).count() == 1
    return job


def test_a_lost_process_gives_its_place_back_with_its_lease(
    world: sagas.World, errand: saga.Saga
) -> None:
    limit(concurrency=1)
    lost, (job,) = stranded(errand), submit(errand, 1)
    engine.drive("forward")
    assert (drives.state(job), world.called) == ("waiting", [])
    drives.expire_lease(lost)
    drives.make_due(job)
    engine.drive("forward")
    assert (drives.state(job), world.called) == ("confirmed", ["post:forward"])
    assert models.Permit.objects.filter(job_id=lost).count() == 0


def test_one_that_dies_before_its_attempt_gives_it_back_too(
    world: sagas.World, errand: saga.Saga
) -> None:
    """A permit counts from its commit, when there is no attempt yet."""
    limit(concurrency=1)
    (lost,) = submit(errand, 1)

    def die(point: str) -> None:
        raise crashpoints.CrashPointError(point)

    with crashpoints.armed("permits.after", die), pytest.raises(crashpoints.CrashPointError):
        engine.drive("forward")
    assert models.Attempt.objects.count() == 0
    (job,) = submit(errand, 1)
    engine.drive("forward")
    assert (drives.state(job), world.called) == ("waiting", [])
    drives.expire_lease(lost)
    drives.make_due(job)
    engine.drive("forward")
    assert drives.state(job) == "confirmed"


def test_a_call_that_returned_counts_no_more_though_its_job_goes_on(world: sagas.World) -> None:
    """The first job is with another provider until the second has had its call of this one."""
    limit(concurrency=1)
    both = threading.Event()
    heard: list[bool] = []

    def post(call: saga.Call) -> outcomes.Sighted:
        if world.times("post:forward") == 2:
            both.set()
        return sagas.confirm(call)

    def stay(call: saga.Call) -> outcomes.Sighted:
        heard.append(both.wait(1.5))
        return sagas.confirm(call)

    world.says("post:forward", post, post)
    world.says("stay:forward", stay)
    other = saga.Effect(provider="other", key_lifetime=timedelta(days=1), call_seconds=2.0)
    steps = [sagas.step(world, "post"), sagas.step(world, "stay", effect=other)]
    with sagas.registered(saga.Saga("test.two", version=1, steps=steps)) as definition:
        jobs = submit(definition, 2)
        drive_to_the_end(jobs)
    assert heard[0], "the place was free while its job was with the other provider"


def test_a_storm_of_bookings_leaves_a_place_for_an_undo(
    world: sagas.World, errand: saga.Saga
) -> None:
    undone = saga.Saga(
        "test.undone",
        version=1,
        steps=[sagas.step(world, "paid"), sagas.step(world, "refused", effect=saga.LOCAL)],
    )
    world.says("refused:forward", sagas.raising(outcomes.Refused("no")))
    with sagas.registered(undone):
        (back,) = submit(undone, 1)
        engine.drive("forward")
        assert (drives.state(back), world.times("paid:backward")) == ("waiting", 0)
        limit(concurrency=2)
        stranded(errand)
        (job,) = submit(errand, 1)
        engine.drive("forward")
        assert drives.state(job) == "waiting"
        engine.drive("compensation")
    assert (drives.state(back), world.times("paid:backward")) == ("compensated", 1)

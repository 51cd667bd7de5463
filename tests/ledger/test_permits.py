"""A provider's limits hold for the whole fleet: whoever asks, what it says, and whatever dies."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from ledger import (
    clock,
    crashpoints,
    engine,
    models,
    outcomes,
    permits,
    saga,
    selectors,
    sql,
    tickets,
)
from ledger.pacing import LATE
from tests import drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")
TOGETHER = 50
LATER = "UPDATE ledger_job SET acting_fence = fence, due_at = ledger_now() + interval '20 s' WHERE id = %s"


@pytest.fixture
def world() -> sagas.World:
    return sagas.World()


@pytest.fixture
def errand(world: sagas.World) -> Iterator[saga.Saga]:
    """One call of the provider `world`, and one by `elsewhere` before it would be too many: a single step."""
    definition = saga.Saga("test.errand", version=1, steps=[sagas.step(world, "post")])
    with sagas.registered(definition):
        yield definition


def limit(**limits: Any) -> None:
    models.Provider.objects.update_or_create(name="world", defaults=limits)


def row() -> models.Provider:
    return models.Provider.objects.get(name="world")


def now() -> datetime:
    at: datetime = sql.fetch("SELECT ledger_now()")[0][0]
    return at


def due(job: UUID) -> datetime:
    return models.Job.objects.get(id=job).due_at


def submit(errand: saga.Saga, count: int) -> list[UUID]:
    tenant = factories.TenantFactory.create()
    return [factories.submit(errand, tenant=tenant) for _ in range(count)]


def states(jobs: list[UUID]) -> list[str]:
    return [drives.state(job) for job in jobs]


def assert_waits_for_nothing(world: sagas.World, job: UUID) -> None:
    """It holds no slot, no lease and no attempt, and will be looked at."""
    stored = models.Job.objects.get(id=job)
    assert (stored.state, stored.owner, stored.lease_until) == ("waiting", None, None)
    assert models.Attempt.objects.filter(job_id=job).count() == 0
    assert world.called == []
    assert selectors.oldest_runnable_seconds()["forward"] == 0


def test_a_provider_without_limits_has_no_row(world: sagas.World, errand: saga.Saga) -> None:
    (job,) = submit(errand, 1)
    drives.drive_all()
    assert drives.state(job) == "confirmed"
    assert models.Provider.objects.count() == 0


def test_an_effect_that_names_no_provider_falls_under_no_limit(world: sagas.World) -> None:
    limit(paused=True)
    models.Provider.objects.create(name="", paused=True)
    step = sagas.step(world, "post", effect=saga.Effect(key_lifetime=timedelta(days=1)))
    with sagas.registered(saga.Saga("test.free", version=1, steps=[step])) as definition:
        (job,) = submit(definition, 1)
        drives.drive_all()
    assert drives.state(job) == "confirmed"


def test_a_paused_provider_is_not_called_and_its_jobs_wait(
    world: sagas.World, errand: saga.Saga
) -> None:
    limit(paused=True)
    (job,) = submit(errand, 1)
    drives.drive_all()
    assert_waits_for_nothing(world, job)
    assert due(job) <= now() + timedelta(seconds=30)
    limit(paused=False)
    drives.make_due(job)
    drives.drive_all()
    assert drives.state(job) == "confirmed"


def test_calls_are_a_rate_apart_on_the_wire(world: sagas.World, errand: saga.Saga) -> None:
    limit(rate_per_second=20.0, compensation_share=0.5)
    jobs = submit(errand, 12)
    begun: list[float] = []

    def note(call: saga.Call) -> outcomes.Sighted:
        begun.append(clock.monotonic())
        return sagas.confirm(call)

    world.says("post:forward", *[note] * 12)
    engine.drive(
        "forward"
    )  # whoever waits for its time keeps the run alive for those who come back
    assert set(states(jobs)) == {"confirmed"}
    windows = [sum(at <= other < at + 1 for other in begun) for at in begun]
    assert max(windows) <= 10
    assert begun[-1] - begun[0] >= 11 * 1.2 / 10 - LATE.total_seconds()


def test_those_beyond_the_next_second_wait_one_after_the_other(
    world: sagas.World, errand: saga.Saga
) -> None:
    limit(rate_per_second=0.5)
    jobs = submit(errand, 5)
    at = now()
    engine.drive("forward")
    assert sorted(states(jobs)) == ["confirmed"] + ["waiting"] * 4
    waits = sorted(
        (due(job) - at).total_seconds() for job in jobs if drives.state(job) == "waiting"
    )
    assert all(b - a == pytest.approx(1.2 / 0.4, abs=0.05) for a, b in pairwise(waits))
    assert world.times("post:forward") == models.Attempt.objects.count() == 1


def test_a_permit_that_was_not_used_in_time_is_void_and_costs_no_budget(
    world: sagas.World, errand: saga.Saga
) -> None:
    """Its process stood still between the commit and the call: another permit is taken."""
    limit(rate_per_second=100.0)
    (job,) = submit(errand, 1)
    slept: list[int] = []

    def sleep(_point: str) -> None:
        if not slept:
            slept.append(1)
            clock.pause(0.3)

    with crashpoints.armed("settle.after", sleep):
        engine.drive("forward")
    assert drives.receipts(job) == [
        ("post", "forward", "not_sent"),
        ("post", "forward", "confirmed"),
    ]
    void = models.Receipt.objects.get(job_id=job, outcome="not_sent").evidence
    assert (void["reason"], void["released"]) == ("permit_void", True)
    assert world.times("post:forward") == 1


def test_commits_that_take_long_make_permits_void_only_until_they_are_asked_for_further_ahead(
    world: sagas.World, errand: saga.Saga
) -> None:
    limit(rate_per_second=100.0)
    (job,) = submit(errand, 1)
    with crashpoints.armed("settle.after", lambda _point: clock.pause(0.3)):
        engine.drive("forward")
    found = [outcome for _, _, outcome in drives.receipts(job)]
    assert found[-1] == "confirmed"
    assert set(found[:-1]) == {"not_sent"}
    assert len(found) <= 5


@pytest.mark.parametrize("limits", [{"rate_per_second": 1e-300}, {"compensation_share": 1 - 1e-16}])
def test_a_rate_of_next_to_nothing_stops_nobody_else(
    world: sagas.World, errand: saga.Saga, limits: dict[str, Any]
) -> None:
    limit(**{"rate_per_second": 1.0, **limits})
    jobs = submit(errand, 3)
    engine.drive("forward")
    assert sorted(states(jobs)) == ["confirmed", "waiting", "waiting"]


@pytest.mark.parametrize("changes", [{"paused": False}, {"rate_per_second": 1000.0}])
def test_a_limit_that_is_lifted_wakes_those_who_wait_for_it_at_once(
    world: sagas.World, errand: saga.Saga, changes: dict[str, Any]
) -> None:
    limit(paused="paused" in changes, rate_per_second=0.001)
    jobs = submit(errand, 3)
    engine.drive("forward")
    elsewhere = saga.Saga(
        "test.elsewhere", version=1, steps=[sagas.step(world, "other", effect=saga.LOCAL)]
    )
    with sagas.registered(elsewhere):
        (other,) = submit(elsewhere, 1)
    sql.fetch(LATER, [other])
    waits, rung = states(jobs).count("waiting"), list[str]()
    assert waits >= 2
    with tickets.heard_by(rung.append):
        assert permits.limit("world", {"rate_per_second": 1000.0, **changes}) == waits
    assert rung == ["forward"]
    assert due(other) > now() + timedelta(seconds=10)
    engine.drive("forward")
    assert set(states(jobs)) == {"confirmed"}
    assert world.times("post:forward") == 3


def test_a_rate_that_is_changed_keeps_its_distance_to_the_permit_before(
    world: sagas.World, errand: saga.Saga
) -> None:
    limit(rate_per_second=100.0, compensation_share=0.5)
    submit(errand, 1)
    engine.drive("forward")
    last = row().forward_free_at
    assert last is not None
    permits.limit("world", {"rate_per_second": 0.5})
    found = row().forward_free_at
    assert found is not None
    assert found - last == timedelta(seconds=1.2 / 0.25) - timedelta(seconds=1.2 / 50)


def test_one_that_fails_and_asks_for_patience_is_left_alone_for_so_long(
    world: sagas.World, errand: saga.Saga
) -> None:
    """503 with Retry-After: what became of the call is unknown, and the fleet waits all the same."""
    asks = outcomes.Unknown("status_503", after=timedelta(seconds=30))
    world.says("post:forward", sagas.raising(asks))
    (job,) = submit(errand, 1)
    engine.drive("forward")
    assert drives.receipts(job) == [("post", "forward", "unknown")]
    told = row().throttled_until
    assert told is not None
    assert timedelta(seconds=28) < told - now() <= timedelta(seconds=30)
    drives.make_due(job)
    engine.drive("forward")
    assert (drives.state(job), world.times("post:forward")) == ("waiting", 1)
    assert due(job) > told


@pytest.mark.parametrize(
    ("answer", "asked"),
    [(outcomes.Throttled(timedelta(seconds=30)), 30.0), (outcomes.Unknown("status_503"), 0.0)],
    ids=["told to wait", "told nothing"],
)
def test_those_who_failed_together_do_not_come_back_together(
    world: sagas.World, errand: saga.Saga, settings: Any, answer: Exception, asked: float
) -> None:
    """None before it may (receipts and due times of one statement are moments apart), and no second has many of them."""
    settings.BACKOFF_SECONDS = 30.0
    world.says("post:forward", *[sagas.raising(answer)] * TOGETHER)
    jobs = submit(errand, TOGETHER)
    engine.drive("forward")
    heard = dict(models.Receipt.objects.values_list("job_id", "at"))
    back = {job: due(job) for job in jobs}
    assert (set(states(jobs)), world.times("post:forward")) == ({"waiting"}, TOGETHER)
    assert all((back[job] - heard[job]).total_seconds() > asked - 0.5 for job in jobs)
    seconds = [
        sum(at <= other < at + timedelta(seconds=1) for other in back.values())
        for at in back.values()
    ]
    assert max(seconds) <= TOGETHER / 2


def test_what_one_is_told_all_obey(world: sagas.World, errand: saga.Saga) -> None:
    world.says("post:forward", sagas.raising(outcomes.Throttled(timedelta(seconds=30))))
    submit(errand, 2)
    engine.drive("forward")
    (third,) = submit(errand, 1)
    told = row().throttled_until
    assert told is not None
    assert timedelta(seconds=28) < told - now() <= timedelta(seconds=30)
    called = len(world.called)
    drives.drive_all()
    assert len(world.called) == called
    assert drives.state(third) == "waiting"
    assert due(third) > told


def test_a_probe_that_is_throttled_holds_up_the_fleet_and_a_paused_provider_is_not_asked(
    world: sagas.World,
) -> None:
    world.says("post:forward", sagas.raising(TimeoutError()))
    world.says("post:forward:probe", sagas.raising(outcomes.Throttled(timedelta(seconds=30))))
    definition = saga.Saga("test.asked", version=1, steps=[sagas.step(world, "post", probe=True)])
    with sagas.registered(definition):
        (job,) = submit(definition, 1)
        drives.drive_all()
        assert world.called == ["post:forward", "post:forward:probe"]
        told = row().throttled_until
        assert told is not None
        assert told > now() + timedelta(seconds=20)
        limit(paused=True, throttled_until=None)
        drives.age_journal(job)
        drives.make_due(job)
        drives.drive_all()
        assert len(world.called) == 2
        assert drives.state(job) == "waiting"


def test_failures_in_a_row_open_the_circuit_and_one_answer_closes_it(
    world: sagas.World, errand: saga.Saga, settings: Any
) -> None:
    settings.PROVIDER_FAILURES_MAX, settings.PROVIDER_OPEN_SECONDS = 3, 60.0
    world.says("post:forward", *[sagas.raising(outcomes.NotSent("connection_refused"))] * 3)
    jobs = submit(errand, 3)
    drives.drive_all()
    assert (world.times("post:forward"), row().opened, row().failures) == (3, 1, 3)
    assert set(states(jobs)) == {"waiting"}
    for job in jobs:
        drives.make_due(job)
    drives.drive_all()
    assert world.times("post:forward") == 3  # open: nobody calls
    limit(open_until=now())
    for job in jobs:
        drives.make_due(job)
    engine.drive("forward")
    assert world.times("post:forward") == 4  # one tries
    assert (row().opened, row().failures) == (0, 0)
    for job in jobs:
        drives.make_due(job)
    drives.drive_all()
    assert set(states(jobs)) == {"confirmed"}


def test_two_providers_are_asked_for_in_one_order_by_all(world: sagas.World) -> None:
    """Jobs of two providers, from many processes at once: no deadlock, and each limit holds."""
    limit(concurrency=50)
    models.Provider.objects.create(name="other", concurrency=50)
    other = saga.Effect(provider="other", key_lifetime=timedelta(days=1), call_seconds=2.0)
    definitions = [
        saga.Saga("test.a", version=1, steps=[sagas.step(world, "a")]),
        saga.Saga("test.b", version=1, steps=[sagas.step(world, "b", effect=other)]),
    ]
    with sagas.registered(definitions[0]), sagas.registered(definitions[1]):
        jobs = [job for definition in definitions for job in submit(definition, 20)]
        psql.together(4, lambda _n: drives.drive_alone("forward"))
        drives.drive_all()
        for job in jobs:
            drives.make_due(job)
        drives.drive_all()
    assert set(states(jobs)) == {"confirmed"}
    assert len(world.called) == 40


def test_after_a_local_step_a_limited_call_has_no_attempt(world: sagas.World) -> None:
    """Its batch commits without the attempt: the permit comes first."""
    limit(paused=True)
    steps = [sagas.step(world, "room", effect=saga.LOCAL), sagas.step(world, "post")]
    with sagas.registered(saga.Saga("test.local", version=1, steps=steps)) as definition:
        (job,) = submit(definition, 1)
        drives.drive_all()
        assert drives.receipts(job) == [("room", "forward", "confirmed")]
        assert models.Attempt.objects.filter(job_id=job, step="post").count() == 0
        assert (drives.state(job), world.called) == ("waiting", ["room:forward"])
        limit(paused=False)
        drives.make_due(job)
        drives.drive_all()
    assert (drives.state(job), world.called) == ("confirmed", ["room:forward", "post:forward"])


def test_whoever_takes_permits_waits_for_who_takes_them_now(
    world: sagas.World, errand: saga.Saga
) -> None:
    """And sees what that one left: a place is given away once."""
    limit(rate_per_second=10.0)
    (job,) = submit(errand, 1)
    with psql.connected(autocommit=False) as other, psql.connected() as watch:
        other.execute("SELECT 1 FROM ledger_provider FOR NO KEY UPDATE")
        taking = psql.Thread(lambda: drives.drive_alone("forward"))
        psql.await_lock_wait(watch)
        other.execute("UPDATE ledger_provider SET forward_free_at = ledger_now() + interval '40 s'")
        other.commit()
        taking.result()
    assert (drives.state(job), world.called) == ("waiting", [])
    assert due(job) > now() + timedelta(seconds=30)

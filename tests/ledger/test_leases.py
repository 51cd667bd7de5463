"""Two owners never overlap: expiry is the database's, a reclaim raises the fence, tells of each open attempt, and makes
the job runnable without running it.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from ledger import clock, crashpoints, engine, journal, leases, models, outcomes, saga, sql
from ledger.states import JobState
from recovery import sweeps
from tests import claims, drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")


def job(job_id: UUID) -> models.Job:
    return models.Job.objects.get(id=job_id)


def running(*, backward: bool = False) -> leases.Claimed:
    """A job under a lease with the attempt of its payment open."""
    with sagas.trip(sagas.World()) as trip:
        claimed = claims.running(trip)
    attempts = [claims.attempt("room"), claims.attempt("payment")]
    direction = claims.BACKWARD if backward else claims.FORWARD
    write = claims.write(
        claimed, receipts=[claims.receipt()], attempts=attempts, direction=direction
    )
    assert claims.settle(write) == ["applied"]
    return claimed


def sightings(job_id: UUID) -> list[tuple[str, int, str, str, int | None, str]]:
    rows = models.Sighting.objects.filter(job_id=job_id).order_by("id")
    return [(s.step, s.n, s.kind, s.outcome, s.fence, s.evidence["how"]) for s in rows]


def test_a_lease_that_has_not_expired_is_left_alone() -> None:
    claimed = running()
    before = claims.snapshot(claimed.id)
    assert leases.reclaim(10) == {}
    assert (claims.snapshot(claimed.id), sightings(claimed.id)) == (before, [])


def test_an_expired_lease_is_ended_with_a_higher_fence_and_a_sighting_of_each_open_attempt() -> (
    None
):
    claimed = running()
    rank = job(claimed.id).rank
    drives.expire_lease(claimed.id)
    assert leases.reclaim(10) == {"forward": 1}
    after = job(claimed.id)
    assert (after.state, after.fence, after.owner, after.lease_until) == ("queued", 2, None, None)
    assert (after.seq, after.rank, after.leases_lost, after.strikes) == (1, rank, 1, 1)
    assert sightings(claimed.id) == [("payment", 1, "sender_lost", "unknown", 1, "lease_expired")]


def test_a_reclaim_runs_nothing() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        claimed = claims.running(trip)
        drives.expire_lease(claimed.id)
        assert sweeps.reclaim().count == 1
    assert (world.called, job(claimed.id).state) == ([], "queued")


def test_an_attempt_of_an_earlier_owner_is_told_of_once() -> None:
    claimed = running()
    for is_suspect in (False, True):
        drives.expire_lease(claimed.id)
        leases.reclaim(10)
        leases.claim("forward", 1, [(claimed.saga, 1)], uuid4(), suspect=is_suspect)
    assert job(claimed.id).fence == 5
    assert [s[4] for s in sightings(claimed.id)] == [1]


def test_a_job_that_goes_backward_comes_back_in_the_compensation_lane() -> None:
    claimed = running(backward=True)
    drives.expire_lease(claimed.id)
    assert leases.reclaim(10) == {"compensation": 1}
    after = job(claimed.id)
    assert (after.lane, after.state, after.direction) == ("compensation", "waiting", "backward")
    assert [c.id for c in _claim(claimed, "compensation")] == [claimed.id]
    drives.expire_lease(claimed.id)
    assert leases.reclaim(10) == {"compensation": 1}
    assert (job(claimed.id).lane, job(claimed.id).state) == ("compensation", "queued")


def _claim(claimed: leases.Claimed, lane: str) -> list[leases.Claimed]:
    with sagas.trip(sagas.World()):
        sweeps.promote()
        return leases.claim(lane, 1, [(claimed.saga, 1)], uuid4())


def test_the_leases_of_a_dead_process_end_at_once_and_no_others() -> None:
    mine, other = running(), running()
    claims.lose(other.id)
    dead = job(mine.id).owner
    assert dead == leases.owner()
    assert leases.end_owner(dead) == {"forward": 1}
    assert (job(mine.id).state, job(mine.id).fence) == ("queued", 2)
    assert sightings(mine.id) == [("payment", 1, "sender_lost", "unknown", 1, "owner_dead")]
    assert (job(other.id).state, job(other.id).fence) == ("running", 2)
    assert leases.end_owner(dead) == {}


def test_a_reclaim_is_bounded() -> None:
    with sagas.trip(sagas.World()) as trip:
        ids = [claims.running(trip).id for _ in range(5)]
    for id_ in ids:
        drives.expire_lease(id_)
    assert [sum(leases.reclaim(2).values()) for _ in range(4)] == [2, 2, 1, 0]


def test_a_job_that_is_being_written_is_passed_over() -> None:
    claimed, free = running(), running()
    for id_ in (claimed.id, free.id):
        drives.expire_lease(id_)
    with psql.connected(autocommit=False) as other:
        other.execute("SELECT 1 FROM ledger_job WHERE id = %s FOR UPDATE", [claimed.id])
        assert leases.reclaim(10) == {"forward": 1}
    assert (job(claimed.id).state, job(free.id).state) == ("running", "queued")


def test_a_renewal_moves_the_lease_by_a_whole_term_and_nothing_else(settings: Any) -> None:
    claimed = running()
    drives.expire_lease(claimed.id)
    before = claims.snapshot(claimed.id)
    assert leases.renew([claimed.lease]) == {claimed.id: claims.FORWARD}
    after = claims.snapshot(claimed.id)
    assert {name for name in before[0] if before[0][name] != after[0][name]} == {"lease_until"}
    left = sql.fetch(
        "SELECT lease_until - ledger_now() FROM ledger_job WHERE id = %s", [claimed.id]
    )[0][0]
    assert (
        timedelta(seconds=settings.LEASE_SECONDS - 5)
        < left
        <= timedelta(seconds=settings.LEASE_SECONDS)
    )


def test_a_renewal_says_which_way_the_job_goes() -> None:
    claimed = running()
    assert claims.turn(claimed.id) == 1
    assert leases.renew([claimed.lease]) == {claimed.id: claims.BACKWARD}


@pytest.mark.parametrize("fence", [0, 2])
def test_a_renewal_under_another_fence_changes_no_row(fence: int) -> None:
    claimed = running()
    before = claims.snapshot(claimed.id)
    assert leases.renew([claimed.lease._replace(fence=fence)]) == {}
    assert claims.snapshot(claimed.id) == before


def test_a_job_that_is_no_longer_running_is_not_renewed() -> None:
    with sagas.trip(sagas.World()) as trip:
        claimed = claims.running(trip)
    journal.settle([claims.write(claimed, state=JobState.QUEUED)])
    assert leases.renew([claimed.lease]) == {}


@pytest.fixture
def sent() -> Iterator[list[Any]]:
    """Every parameter of every statement that this thread sends, but for a provider's times: those are the database's own
    now plus lengths, worked out under the lock of its row (`ledger.pacing`).
    """
    found: list[Any] = []

    def wrapper(
        execute: Callable[..., Any], statement: str, params: Any, many: bool, context: Any
    ) -> Any:
        found.extend(() if "UPDATE ledger_provider" in statement else flat(params))
        return execute(statement, params, many, context)

    with connection.execute_wrapper(wrapper):
        yield found


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for member in value.values():
            yield from flat(member)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from flat(item)
    else:
        yield value


def test_no_clock_of_ours_is_ever_sent_to_the_database(sent: list[Any]) -> None:
    """Leases and due times are set and compared by ledger_now(); we send lengths only."""
    world = sagas.World()
    world.says("room:forward", sagas.raising(outcomes.NotSent("refused")))
    world.says("payment:forward", sagas.raising(outcomes.Throttled(timedelta(seconds=30))))
    world.says("ticket:forward", sagas.raising(outcomes.Refused("no_seat")))
    with sagas.trip(world) as trip:
        one = factories.submit(trip)
        drives.drive_all()
        drives.make_due(one)
        drives.age_journal(one)
        drives.drive_all()
    sweeps.reclaim()
    sweeps.promote()
    assert drives.state(one) == "compensated"
    assert len(sent) > 100
    assert [value for value in sent if isinstance(value, datetime | date | time)] == []
    year = str(sql.fetch("SELECT extract(year FROM ledger_now())::int")[0][0])
    assert [v for v in sent if isinstance(v, str) and v.startswith(f"{year}-")] == []
    epoch = float(sql.fetch("SELECT extract(epoch FROM ledger_now())")[0][0])
    assert [v for v in sent if isinstance(v, float) and abs(v - epoch) < 1e6] == []


def test_a_lease_is_counted_from_when_its_claim_was_sent_and_not_from_when_the_answer_came(
    settings: Any,
) -> None:
    """A job that is claimed beside others is not renewed at once: its first call is made on what the claim says."""
    sent_at: list[float] = []
    with sagas.trip(sagas.World()) as trip:
        factories.submit(trip)
        run = engine.Run("forward")
        with (
            crashpoints.armed("claim.before", lambda _: sent_at.append(clock.monotonic())),
            crashpoints.armed("claim.after", lambda _: clock.pause(0.1)),
        ):
            run.claim()
    (held,) = run.held.values()
    assert held.lease_deadline <= sent_at[0] + settings.LEASE_SECONDS


def test_a_lease_is_renewed_before_the_longest_call_no_longer_fits_in_it(settings: Any) -> None:
    """Else the call would be given back unsent, and its next attempt too, hundreds of times until the heartbeat."""
    settings.LEASE_SECONDS, settings.HEARTBEAT_SECONDS, settings.CALL_SECONDS_MAX = 4.0, 1.3, 2.9
    effect = saga.Effect(provider="world", key_lifetime=timedelta(days=1), call_seconds=2.9)
    world = sagas.World()
    world.says("room:forward", _taking(0.7))
    steps = [sagas.step(world, name, effect=effect) for name in ("room", "payment")]
    with sagas.registered(saga.Saga("test.long", version=1, steps=steps)) as definition:
        job = factories.submit(definition)
        engine.drive("forward")
    assert drives.state(job) == "confirmed"
    assert models.Attempt.objects.filter(job_id=job).count() == 2


def _taking(seconds: float) -> sagas.Answer:
    def answer(call: saga.Call) -> outcomes.Confirmed:
        threading.Event().wait(seconds)
        return sagas.confirm(call)

    return answer

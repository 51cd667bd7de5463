"""A commit whose reply is lost is recognised, never done twice: a claim by its token, a settle by its write id."""

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, connection

from ledger import crashpoints, engine, journal, leases, models, saga, shares
from ledger.states import JobState
from tests import claims, drives, factories, lost_replies, sagas

pytestmark = pytest.mark.usefixtures("worker_role")

CLAIM = "claim_token = %(token)s, lease_until"
SETTLE = "INSERT INTO ledger_receipt"
PROMOTE = "INSERT INTO ledger_share"
RENEW = "WITH mine AS MATERIALIZED"
TRIP = ["room:forward", "payment:forward", "ticket:forward"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("marker", [CLAIM, PROMOTE, "ledger_attempt WHERE job_id = ANY"])
def test_a_run_goes_on_over_a_lost_connection(marker: str, when: lost_replies.When) -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        if "ledger_attempt" in marker:  # a journal is read only of a job that has one
            models.Job.objects.filter(id=job).update(seq=1, acting_fence=0)
        with lost_replies.dying(marker, when) as ended:
            engine.drive("forward")
    assert ended == [when]
    assert (drives.state(job), world.called) == ("confirmed", TRIP)
    assert models.Job.objects.get(id=job).fence == 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_each_settle_of_a_trip_is_stored_once_whether_its_reply_is_lost_or_it_never_arrived(
    nth: int, when: lost_replies.When
) -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        with lost_replies.dying(SETTLE, when, nth) as ended:
            engine.drive("forward")
    assert ended == [when]
    assert (drives.state(job), world.called) == ("confirmed", TRIP)
    assert claims.rows(job) == {
        "attempt": 3,
        "receipt": 3,
        "checkpoint": 3,
        "resolution": 0,
        "sighting": 0,
    }
    assert models.Job.objects.get(id=job).leases_lost == 0


def test_the_claim_whose_reply_was_lost_is_adopted_by_its_token() -> None:
    with sagas.trip(sagas.World()) as trip:
        job = factories.submit(trip)
    shares.promote("forward")
    token = uuid4()
    with crashpoints.armed("claim.after", _lose), pytest.raises(OperationalError):
        leases.claim("forward", 4, [trip.key], token)
    adopted = leases.claimed_before(token)
    assert [(c.id, c.fence) for c in adopted] == [(job, 1)]
    assert leases.claimed_before(uuid4()) == []


def _lose(_point: str) -> None:
    raise OperationalError("the reply is lost")


def test_a_settle_is_recognised_by_its_write_id_and_reads_back_what_is_stored() -> None:
    with sagas.trip(sagas.World()) as trip:
        job = claims.running(trip)
    write, write_id = claims.write(job, attempts=[claims.attempt()], receipts=[]), uuid4()
    first = journal.settle([write], write_id)[job.id]
    again = journal.settle([write], write_id)[job.id]
    assert (first.result, first.fits, first.seq) == ("applied", True, 1)
    assert (again.result, again.fits, again.seq) == ("repeated", True, 1)
    assert claims.rows(job.id)["attempt"] == 1


def test_the_same_write_under_another_id_is_stale() -> None:
    with sagas.trip(sagas.World()) as trip:
        job = claims.running(trip)
    write = claims.write(job, attempts=[claims.attempt()])
    journal.settle([write], uuid4())
    assert journal.settle([write], uuid4())[job.id].result == "stale"
    assert claims.rows(job.id)["attempt"] == 1


def test_a_repeated_write_whose_attempt_was_not_stored_does_not_fit() -> None:
    """It was turned before the first try: its receipts are stored, its attempt is not, so no call may follow."""
    with sagas.trip(sagas.World()) as trip:
        job = claims.running(trip)
    journal.settle([claims.write(job, attempts=[claims.attempt()])])
    assert claims.turn(job.id) == 1
    write_id = uuid4()
    write = claims.write(
        job, seq=1, receipts=[claims.receipt()], attempts=[claims.attempt("payment")]
    )
    first = journal.settle([write], write_id)[job.id]
    again = journal.settle([write], write_id)[job.id]
    assert (first.result, first.fits, first.direction) == (
        "applied",
        False,
        saga.Direction.BACKWARD,
    )
    assert (again.result, again.fits, again.direction) == (
        "repeated",
        False,
        saga.Direction.BACKWARD,
    )
    assert (claims.rows(job.id)["attempt"], claims.rows(job.id)["receipt"]) == (1, 1)


def test_a_settle_repeated_together_with_one_that_is_new_stores_only_the_new_one() -> None:
    with sagas.trip(sagas.World()) as trip:
        done, new = claims.running(trip), claims.running(trip)
    write_id = uuid4()
    writes = [claims.write(job, attempts=[claims.attempt()]) for job in (done, new)]
    journal.settle(writes[:1], write_id)
    written = journal.settle(writes, write_id)
    assert (written[done.id].result, written[new.id].result) == ("repeated", "applied")


def test_an_ended_job_is_recognised_too() -> None:
    with sagas.trip(sagas.World()) as trip:
        job = claims.running(trip)
    write, write_id = (
        claims.write(job, state=JobState.REFUSED, checkpoint={"state": "refused"}),
        uuid4(),
    )
    results = [journal.settle([write], write_id)[job.id].result for _ in range(2)]
    assert results == ["applied", "repeated"]
    assert claims.rows(job.id)["checkpoint"] == 1


def test_jobs_that_are_held_outlive_an_outage_that_a_claim_meets(settings: Any) -> None:
    """It is longer than a claim with nothing in hand would wait, and shorter than the lease."""
    settings.LEASE_SECONDS, settings.HEARTBEAT_SECONDS, settings.CALL_SECONDS_MAX = 4.5, 1.0, 2.0
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        with connection.execute_wrapper(_down_for(2.0)):
            engine.drive("forward")
    assert (drives.state(job), world.called) == ("confirmed", TRIP)
    assert models.Job.objects.get(id=job).fence == 1


def _down_for(seconds: float) -> Callable[..., Any]:
    """The second claim meets a server that takes no connection, for so long."""
    asked: list[float] = []

    def wrapper(
        execute: Callable[..., Any], statement: str, params: Any, many: bool, context: Any
    ) -> Any:
        if CLAIM in statement:
            asked.append(time.monotonic())
            if len(asked) > 1 and asked[-1] - asked[1] < seconds:
                raise OperationalError("the database is starting up")
        return execute(statement, params, many, context)

    return wrapper


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_renewal_is_repeated(settings: Any, when: lost_replies.When) -> None:
    settings.HEARTBEAT_SECONDS = 0.0
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        with lost_replies.dying(RENEW, when) as ended:
            engine.drive("forward")
    assert ended == [when]
    assert (drives.state(job), world.called) == ("confirmed", TRIP)


def test_a_local_batch_whose_reply_was_lost_has_its_effect_once() -> None:
    world = sagas.World()
    step = sagas.step(world, "room", effect=saga.LOCAL, undo_effect=saga.LOCAL)
    with sagas.registered(saga.Saga("test.local", version=1, steps=[step])) as definition:
        job = factories.submit(definition)
        with crashpoints.armed("local.after", _lose):
            engine.drive("forward")
        drives.expire_lease(job)
        leases.reclaim(10)
        drives.drive_all()
    assert world.called == ["room:forward"]
    assert (drives.state(job), drives.receipts(job)) == (
        "confirmed",
        [("room", "forward", "confirmed")],
    )

"""A renewal that does not get through: shorter than the lease it is waited for, longer than the lease nothing more is done.

Somebody's session holds the job's row while a call of it is on the way; the call itself answers in good time.
"""

import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError

from ledger import calls, crashpoints, engine, leases, models, outcomes, saga, sql
from ledger.saga import Call
from tests import claims, drives, factories, psql, sagas

pytestmark = [pytest.mark.usefixtures("worker_role"), pytest.mark.timeout(60)]
ROW = "SELECT 1 FROM ledger_job WHERE id = %s FOR UPDATE"
LEFT = "SELECT lease_until - ledger_now() < interval '1.2 s' FROM ledger_job WHERE id = %s"


@pytest.fixture(autouse=True)
def short(settings: Any) -> Iterator[None]:
    settings.LEASE_SECONDS, settings.HEARTBEAT_SECONDS, settings.CALL_SECONDS_MAX = 2.5, 0.2, 1.0
    settings.BACKOFF_SECONDS = 0.0
    yield
    calls._pool = None


class Answering:
    """The payment answers when the test says so."""

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def __call__(self, call: Call) -> outcomes.Outcome:
        self.asked.set()
        assert self.may_answer.wait(10.0)
        return sagas.confirm(call)


def drive() -> None:
    sql.fetch("SET lock_timeout = '300ms'")  # which the processes' own connections begin with
    engine.drive("forward")


def begin(trip: saga.Saga, payment: Answering) -> tuple[UUID, psql.Thread[None]]:
    job = factories.submit(trip)
    driving = psql.Thread(drive)
    assert payment.asked.wait(10.0)
    return job, driving


def test_shorter_than_the_lease_it_goes_on() -> None:
    world, payment = sagas.World(), Answering()
    world.says("payment:forward", payment)
    with sagas.trip(world) as trip, psql.connected() as watch:
        job, driving = begin(trip, payment)
        with psql.connected(autocommit=False) as other:
            other.execute(ROW, [job])
            payment.may_answer.set()
            psql.await_lock_wait(watch)
        driving.result()
    assert drives.state(job) == "confirmed"
    assert world.called == ["room:forward", "payment:forward", "ticket:forward"]
    assert claims.rows(job)["attempt"] == 3


def test_longer_than_the_lease_it_stops_before_its_next_call_and_writes_nothing() -> None:
    """Every statement of ours has a lock timeout; what it held is another owner's to go on with, under the same id."""
    world, payment = sagas.World(), Answering()
    world.says("payment:forward", payment)
    with sagas.trip(world) as trip, psql.connected() as watch:
        job, driving = begin(trip, payment)
        before = claims.snapshot(job)
        with psql.connected(autocommit=False) as other:
            other.execute(ROW, [job])
            payment.may_answer.set()
            with pytest.raises(OperationalError):
                driving.result()
            other.rollback()
        assert claims.snapshot(job) == before
        assert world.called == ["room:forward", "payment:forward"]
        psql.await_true(
            watch, "SELECT lease_until < ledger_now() FROM ledger_job WHERE id = %s", [job]
        )
        leases.reclaim(10)
        drives.drive_all()
    assert drives.state(job) == "confirmed"
    assert world.called == ["room:forward", *["payment:forward"] * 2, "ticket:forward"]
    assert len({call.operation_id for call in world.calls}) == 3


def test_it_is_counted_from_when_a_renewal_was_sent_and_not_from_when_its_answer_came() -> None:
    """The answer comes when the lease it tells of has too little left for a call: none begins before another renewal."""
    world, held = sagas.World(), list[str]()
    with sagas.trip(world) as trip, psql.connected() as watch:
        job = factories.submit(trip)

        def answer_late(point: str) -> None:
            if not held:
                held.append(point)
                psql.await_true(watch, LEFT, [job])

        with crashpoints.armed("renew.after", answer_late):
            engine.drive("forward")
    first = models.Receipt.objects.filter(job_id=job).earliest("id")
    assert (first.outcome, first.evidence["reason"]) == ("not_sent", "lease_too_short")
    assert drives.state(job) == "confirmed"
    assert world.called == ["room:forward", "payment:forward", "ticket:forward"]

"""Statements over several jobs lock them in the order of their ids, so that two of them never wait for each other."""

import random
from collections.abc import Callable
from typing import Any, cast
from uuid import uuid4

import pytest
from django.db import OperationalError, transaction

from ledger import journal, leases, local_batches, models, saga, shares, sql, turns
from ledger.holding import Held
from ledger.states import JobState
from tests import claims, drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")

ROUNDS = 40
LOCK = "SELECT 1 FROM ledger_job WHERE id = %s FOR UPDATE"
Jobs = list[leases.Claimed]


@pytest.fixture
def trip() -> saga.Saga:
    with sagas.trip(sagas.World()) as definition:
        return definition


def running(trip: saga.Saga, count: int) -> Jobs:
    for _ in range(count):
        factories.submit(trip)
    jobs = sorted(claims.claim(trip, count), key=lambda c: c.id)
    for job in jobs[::-1]:  # where their rows lie is then not the order of their ids
        leases.renew([job.lease])
    return jobs


def settle(jobs: Jobs) -> None:
    journal.settle([claims.write(job, attempts=[claims.attempt(n=job.fence)]) for job in jobs])


def renew(jobs: Jobs) -> None:
    leases.renew([job.lease for job in jobs])


def lock_for_a_batch(jobs: Jobs) -> None:
    with transaction.atomic():
        local_batches._lock_jobs(cast("list[Held]", jobs))


@pytest.mark.parametrize("statement", [settle, renew, lock_for_a_batch])
def test_jobs_are_locked_in_order_of_id_whatever_order_they_are_named_in(
    trip: saga.Saga, statement: Callable[[Jobs], None]
) -> None:
    """While it waits for the first job, it holds none of the later ones."""
    jobs = running(trip, 5)
    with psql.connected(autocommit=False) as other, psql.connected() as watch:
        other.execute(LOCK, [jobs[0].id])
        waiting = psql.Thread(lambda: statement(jobs[::-1]))
        psql.await_lock_wait(watch)
        got = [other.execute(f"{LOCK} NOWAIT", [job.id]).rowcount for job in jobs[1:]]
        assert got == [1] * 4
        other.commit()
        waiting.result()


def test_what_it_has_passed_it_holds(trip: saga.Saga) -> None:
    """The control: waiting for the last job, it holds every one before it."""
    jobs = running(trip, 3)
    with psql.connected(autocommit=False) as other, psql.connected() as watch:
        other.execute(LOCK, [jobs[-1].id])
        waiting = psql.Thread(lambda: settle(jobs[::-1]))
        psql.await_lock_wait(watch)
        with psql.connected() as third:
            assert psql.refusal(third, f"{LOCK} NOWAIT", [jobs[0].id])[0] == "55P03"
        other.commit()
        waiting.result()
    assert models.Attempt.objects.count() == 3


def expire(_jobs: Jobs) -> None:
    leases.reclaim(10)


def end(_jobs: Jobs) -> None:
    leases.end_owner(leases.owner())


def deadlines(_jobs: Jobs) -> None:
    turns.expire_deadlines(10)


@pytest.mark.parametrize("statement", [expire, end, deadlines])
def test_who_is_no_owner_waits_for_nobody(
    trip: saga.Saga, statement: Callable[[Jobs], None]
) -> None:
    jobs = running(trip, 3)
    for job in jobs:
        drives.expire_lease(job.id)
        sql.fetch(
            "UPDATE ledger_job SET acting_fence = fence, deadline_at = ledger_now() - interval '1 s' WHERE id = %s",
            [job.id],
        )
    with psql.connected(autocommit=False) as other:
        other.execute(LOCK, [jobs[1].id])
        psql.Thread(lambda: statement(jobs)).result(5.0)
    touched = {j.id for j in models.Job.objects.exclude(state="running", direction="forward")}
    assert touched == {jobs[0].id, jobs[2].id}


def deadlocks(work: Callable[[], Any]) -> int:
    """Run it so many times; how often the server broke a deadlock. Any other error is the test's."""
    met = 0
    for _ in range(ROUNDS):
        try:
            work()
        except OperationalError as error:
            if sql.state_of(error) != "40P01":
                raise
            met += 1
    return met


def test_settle_renewal_and_reclaim_at_once_meet_in_no_deadlock(trip: saga.Saga) -> None:
    for _ in range(30):
        factories.submit(trip)
    shares.promote("forward")

    def owner() -> None:
        held = leases.claim("forward", 12, [trip.key], uuid4())
        random.shuffle(held)
        renew(held)
        settle(held)
        random.shuffle(held)
        back = {
            "state": JobState.QUEUED
        }  # with a receipt: whoever is lost again and again would be claimed no more
        journal.settle(
            [
                claims.write(
                    h, seq=h.seq + 1, receipts=[claims.receipt("unknown", n=h.fence)], **back
                )
                for h in held
            ]
        )

    def write_over() -> None:
        """Writes under whatever fence it sees: most are stale, all take locks."""
        known = ("id", "fence", "claim_token", "seq")
        rows = list(models.Job.objects.filter(state="running").values_list(*known))
        random.shuffle(rows)
        leases.renew([leases.Lease(*row) for row in rows])

    def reclaimer() -> None:
        sql.fetch(
            "UPDATE ledger_job SET acting_fence = fence, lease_until = ledger_now() - interval '1 s'"
            " WHERE id IN (SELECT id FROM ledger_job WHERE state = 'running' ORDER BY id"
            " FOR NO KEY UPDATE SKIP LOCKED)"
        )
        leases.reclaim(20)

    leases.claim("forward", 3, [trip.key], uuid4())  # for the reclaimer at least, whoever is quick
    works = [owner, owner, write_over, reclaimer]
    assert psql.together(len(works), lambda n: deadlocks(works[n])) == [0] * len(works)
    assert models.Attempt.objects.exists()
    assert models.Job.objects.filter(leases_lost__gt=0).exists()

"""A worker that is told to leave finishes the calls that are out, stores what they brought and gives the rest back.

The lease is 30 s here, and there is no beat: whatever waited for a lease or a sweep would miss every deadline below.
"""

import signal
import time
from collections.abc import Iterator

import pytest

from config import programs
from ledger import models
from tests.acceptance import deaths
from tests.acceptance import live as acceptance
from tests.acceptance.live import CAPTURE, Live

pytestmark = pytest.mark.timeout(90)
LONG_LEASE = {"LEASE_SECONDS": "30", "HEARTBEAT_SECONDS": "5", "SLOTS": "4"}
GRACE_SECONDS = 8.0  # one call (1.2 s and its slack), the settle, and Celery's own way out
AT_ONCE_SECONDS = 8.0
JOBS = 20


@pytest.fixture(scope="module")
def running(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API)
    return live


@pytest.fixture(autouse=True)
def honest(running: Live) -> Iterator[None]:
    yield
    running.be_honest()
    running.end(programs.WORKER)


def leave(live: Live) -> None:
    """TERM to the parent alone; it leaves in order and in time."""
    told = time.monotonic()
    live.stack.kill(programs.WORKER, signal.SIGTERM)
    assert live.stack.wait_ended(programs.WORKER, GRACE_SECONDS) == 0
    print(f"left within {time.monotonic() - told:.2f} s")  # noqa: T201  a measured figure


def states(tenant: models.Tenant) -> set[str]:
    return set(models.Job.objects.filter(tenant=tenant).values_list("state", flat=True))


def test_calls_in_flight_are_stored_and_the_rest_is_given_back(running: Live) -> None:
    running.rule("delay", match="capture", seconds=0.8)
    running.start(programs.WORKER, env=LONG_LEASE)
    agent = running.agent()
    bookings = agent.book_many(JOBS)
    acceptance.until(lambda: acceptance.in_flight(bookings, CAPTURE) >= 4, 10)
    leave(running)

    assert states(agent.tenant) <= {"queued", "waiting", "confirmed"}
    assert {"queued", "waiting"} & states(agent.tenant)  # or nothing was left to give back
    assert acceptance.in_flight(bookings, CAPTURE) == 0
    receipts = models.Receipt.objects.filter(job__tenant=agent.tenant, step=CAPTURE)
    assert set(receipts.values_list("outcome", flat=True)) <= {"confirmed", "not_sent"}
    assert receipts.filter(outcome="confirmed").exists()
    assert all(r.evidence["released"] for r in receipts.filter(outcome="not_sent"))
    running.assert_books_agree(bookings)  # every effect there is has its receipt
    assert running.broker.llen("forward") >= 1  # somebody was told

    running.be_honest()
    running.start(programs.WORKER, env=LONG_LEASE)
    running.ended(bookings, "confirmed", AT_ONCE_SECONDS)
    assert not models.Job.objects.filter(tenant=agent.tenant, leases_lost__gt=0).exists()
    assert {tuple(running.kinds(booking)) for booking in bookings} == {("capture", "ticket")}
    running.assert_books_agree(bookings)


def test_a_call_that_does_not_come_back_is_stored_as_unknown(running: Live) -> None:
    running.rule("hold", match="capture", times=1, answer=True, seconds=60.0)
    running.start(programs.WORKER, env=LONG_LEASE)
    booking = running.agent().book()
    acceptance.until(lambda: running.requests(booking), 10)
    leave(running)

    assert running.job(booking).state in {"queued", "waiting"}
    assert acceptance.outcomes(booking)[-1] == (CAPTURE, "forward", "unknown")
    assert running.effects(booking) == []

    running.start(programs.WORKER, env=LONG_LEASE)
    running.ended([booking], "confirmed", AT_ONCE_SECONDS)
    running.control("release")
    assert running.kinds(booking) == ["capture", "ticket"]
    assert running.job(booking).leases_lost == 0
    running.assert_books_agree([booking])


def test_a_worker_with_nothing_to_do_leaves_nobody_behind(running: Live) -> None:
    running.start(programs.WORKER, env=LONG_LEASE)
    started = running.started(programs.WORKER)
    assert len(started) == 1 + 2 + 1  # the parent, its pool and the watcher
    leave(running)
    assert not deaths.alive(started)

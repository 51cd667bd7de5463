"""All of the broker is lost: what was accepted is in PostgreSQL, and the sweeps find it, ranked or not ranked yet."""

import pytest

from config import programs
from ledger import models, shares
from tests.acceptance.live import Live

pytestmark = pytest.mark.timeout(90)
JOBS = 20
SECONDS = 20.0


@pytest.fixture(scope="module")
def running(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API)
    return live


@pytest.mark.parametrize("state", ["waiting", "queued"])
def test_jobs_whose_tickets_were_lost_are_found(running: Live, state: str) -> None:
    """A job that is ranked already is nobody's but the ring sweep's to find."""
    for name in (programs.BEAT, programs.SWEEPS, programs.WORKER):
        running.end(name)
    agent = running.agent()
    bookings = agent.book_many(JOBS)
    if state == "queued":
        assert shares.promote("forward") == JOBS
    running.broker.flushdb()
    assert models.Job.objects.filter(tenant=agent.tenant, state=state).count() == JOBS

    running.start(programs.WORKER, programs.SWEEPS, programs.BEAT)
    running.assert_each_once(bookings, SECONDS)
    assert agent.small.taken()[:2] == [JOBS, JOBS]


def test_the_broker_is_emptied_while_everything_runs(running: Live) -> None:
    """Consumers and publishers go on with what is left of the broker."""
    for name in (programs.BEAT, programs.SWEEPS, programs.WORKER):
        if not running.started(name):
            running.start(name)
    running.control("latency", mean_seconds=0.1)
    agent = running.agent()
    bookings = agent.book_many(5)
    running.broker.flushdb()
    bookings += agent.book_many(5)
    running.assert_each_once(bookings, SECONDS)
    running.be_honest()

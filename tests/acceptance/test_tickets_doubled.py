"""A ticket carries no job: delivered again, doubled, all at once or after the end, it does nothing that was done."""

from collections.abc import Iterator

import pytest

from config import programs
from ledger import models
from tests.acceptance import live as acceptance
from tests.acceptance.live import CAPTURE, STEPS, Live

pytestmark = pytest.mark.timeout(90)
CHILDREN = 10
ONCE_EACH = {(step, "forward"): 1 for step in STEPS}
SECONDS = 20.0
# A call may take long here, so that a job can be held while others look for it.
PATIENT = {
    "LEASE_SECONDS": "30",
    "HEARTBEAT_SECONDS": "5",
    "CALL_SECONDS_MAX": "15",
    "PROVIDER_CALL_SECONDS": "12",
    "TASK_TIME_LIMIT_SECONDS": "60",
    "VISIBILITY_TIMEOUT_SECONDS": "90",
}


@pytest.fixture(scope="module")
def running(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API)
    live.start(programs.WORKER, concurrency=CHILDREN, env=PATIENT)
    assert len(live.pool()) == CHILDREN
    return live


@pytest.fixture(autouse=True)
def honest(running: Live) -> Iterator[None]:
    yield
    running.be_honest()


def test_one_ticket_five_times_before_and_after_the_end(running: Live) -> None:
    agent = running.agent()
    booking = agent.book()
    running.deliver("forward", 5)
    running.ended([booking], "confirmed", SECONDS)
    seen = (running.requests(booking), running.effects(booking), acceptance.outcomes(booking))
    assert [effect["kind"] for effect in seen[1]] == ["capture", "ticket"]

    running.deliver("forward", 5)
    acceptance.until(running.is_silent, SECONDS)
    assert (
        running.requests(booking),
        running.effects(booking),
        acceptance.outcomes(booking),
    ) == seen
    job = running.job(booking)
    assert (job.state, job.fence) == ("confirmed", 1)
    assert agent.small.taken()[:2] == [1, 1]
    running.assert_books_agree([booking])


def test_ten_children_and_one_job(running: Live) -> None:
    """Ten more tickets while one child holds the job: the others look, find nothing and end."""
    running.rule("hold", match="capture", times=1, answer=True, seconds=60.0)
    booking = running.agent().book()
    acceptance.until(lambda: running.requests(booking), SECONDS)
    running.deliver("forward", CHILDREN)
    acceptance.until(lambda: running.broker.llen("forward") == 0, SECONDS)
    acceptance.until(lambda: running.broker.hlen("unacked") == 1, SECONDS)
    assert acceptance.in_flight([booking], CAPTURE) == 1
    assert running.effects(booking) == []
    running.control("release")
    running.ended([booking], "confirmed", SECONDS)
    assert acceptance.attempts(booking) == ONCE_EACH
    assert running.job(booking).fence == 1
    assert [request["kind"] for request in running.requests(booking)] == ["capture", "ticket"]
    running.assert_books_agree([booking])


def test_ten_children_and_many_jobs(running: Live) -> None:
    running.control("latency", mean_seconds=0.05, jitter=0.9)
    agent = running.agent()
    bookings = []
    for _ in range(CHILDREN):
        bookings += agent.book_many(3)
        running.deliver("forward", 3)
    running.ended(bookings, "confirmed", SECONDS)
    acceptance.until(running.is_silent, SECONDS)
    assert all(acceptance.attempts(booking) == ONCE_EACH for booking in bookings)
    assert set(
        models.Job.objects.filter(tenant=agent.tenant).values_list("fence", "leases_lost")
    ) == {(1, 0)}
    assert agent.small.taken()[:2] == [len(bookings)] * 2
    assert running.net(bookings) == 20_000 * len(bookings)
    running.assert_books_agree(bookings)

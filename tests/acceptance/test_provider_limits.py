"""A provider's limit with real processes: its own books count every request, in every second of the run.

Two forward workers of two children, and the compensation lane's, share one rate. Permits stand so far apart that no second
holds more than each lane's part, rounded up, though calls are a little late. One more is allowed for a machine that has too
little time for all these processes.
"""

import signal
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from config import programs
from ledger import models, pacing
from tests.acceptance import deaths
from tests.acceptance.live import CAPTURE, Live, until

pytestmark = pytest.mark.timeout(120)
RATE, SHARE, BURST = 20.0, 0.5, 1
JOBS, REFUSED = 80, 30
SECONDS = 60.0


SECOND = f"{programs.WORKER}.2"


@pytest.fixture(scope="module")
def running(live: Live) -> Iterator[Live]:
    live.start(programs.SANDBOX)
    workers = (programs.WORKER, SECOND, programs.COMPENSATION, programs.SWEEPS)
    live.start(programs.API, *workers, programs.BEAT)
    yield live
    live.end(SECOND)


@pytest.fixture(autouse=True)
def limits(running: Live) -> Iterator[None]:
    """Every test sets its own."""
    models.Provider.objects.all().delete()
    yield
    running.be_honest()


def payments(live: Live, since: int) -> list[dict[str, Any]]:
    """Requests of the payment provider, whatever they ask."""
    rows = live.sandbox.get("/books/requests", params={"after": str(since)}).json()
    return [row for row in rows if f":{CAPTURE}:" in row["operation_id"]]


def last(live: Live) -> int:
    rows = live.sandbox.get("/books/requests").json()
    return int(rows[-1]["n"]) if rows else 0


def most_in_a_second(requests: list[dict[str, Any]]) -> int:
    times = sorted(row["received_at"] for row in requests)
    counts: list[int] = [sum(at <= other < at + 1 for other in times) for at in times]
    return max(counts)


def test_every_second_keeps_the_rate_in_a_storm_with_refunds_a_lost_broker_and_a_killed_child(
    running: Live,
) -> None:
    models.Provider.objects.create(name="payments", rate_per_second=RATE, compensation_share=SHARE)
    since, agent = last(running), running.agent(capacity=2 * JOBS)
    running.rule("refuse", match="ticket", times=REFUSED)
    bookings = agent.book_many(JOBS)
    until(lambda: len(payments(running, since)) > 20, SECONDS)
    running.broker.flushdb()
    deaths.signal_all(running.pool()[:1], signal.SIGKILL)

    def ended() -> bool:
        states = models.Job.objects.filter(tenant=agent.tenant).values_list("state", flat=True)
        return set(states) <= {"confirmed", "compensated"}

    until(ended, SECONDS, lambda: running._explain(""))
    requests = payments(running, since)
    refunds = [r for r in requests if r["kind"] == "refund"]
    assert most_in_a_second(requests) <= RATE + BURST
    assert len(refunds) >= REFUSED
    assert min(r["received_at"] for r in refunds) < max(
        r["received_at"] for r in requests if r["kind"] == "capture"
    ), "refunds did not wait for the storm to be over"
    running.assert_books_agree(bookings)
    assert models.Job.objects.filter(tenant=agent.tenant, state="compensated").count() == REFUSED


def test_the_patience_that_one_call_is_asked_for_is_kept_by_all(running: Live) -> None:
    """Permits that are out already are used: of the next second, and no more."""
    models.Provider.objects.create(name="payments", rate_per_second=RATE, compensation_share=SHARE)
    since, agent = last(running), running.agent()
    running.rule("throttle", match="capture", times=1, retry_after=3)
    bookings = agent.book_many(20)
    running.ended(bookings, "confirmed", SECONDS)
    requests = payments(running, since)
    (told,) = [r["received_at"] for r in requests if r["status"] == 429]
    out = (pacing.HORIZON + pacing.LATE + timedelta(seconds=0.3)).total_seconds()
    assert [r for r in requests if told + out < r["received_at"] < told + 3] == []
    after = [r for r in requests if r["received_at"] >= told + 3]
    assert len(after) >= 1
    assert most_in_a_second(requests) <= RATE + BURST
    running.assert_books_agree(bookings)


def test_a_limit_on_calls_at_once_is_given_back_by_a_killed_child(running: Live) -> None:
    models.Provider.objects.create(name="payments", concurrency=1)
    agent = running.agent()
    running.rule("hang", match="capture", times=1)
    bookings = agent.book_many(6)
    until(models.Permit.objects.exists, SECONDS)
    for name in (programs.WORKER, SECOND):
        deaths.signal_all(running.pool(name), signal.SIGKILL)
    running.ended(bookings, "confirmed", SECONDS)
    running.assert_books_agree(bookings)

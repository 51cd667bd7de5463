"""A child that hangs is killed by Celery's hard time limit, and its jobs go on: one effect per operation, whatever it knew.

The promise: what a hung process holds is lost to it alone. A run ends long before the limit by itself, so that the whole
child is stopped where one call has returned and nobody has read its answer; the others of its calls take effect meanwhile.
The lease is longer than the test and no beat runs: only the limit, and the watcher that sees the death, can end it.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from config import programs
from ledger import crashpoints, models
from tests.acceptance import deaths
from tests.acceptance import live as acceptance
from tests.acceptance.live import CAPTURE, STEPS, Live

pytestmark = pytest.mark.timeout(90)
LIMIT_SECONDS = 8.0
PERIODS = {
    "LEASE_SECONDS": "60",
    "HEARTBEAT_SECONDS": "5",
    "RUN_SECONDS": "1",
    "TASK_TIME_LIMIT_SECONDS": f"{LIMIT_SECONDS:g}",
}
LATE_SECONDS = 4.0  # Celery looks once a second, and gives a child that is told to end a moment
SECONDS = 15.0


@pytest.fixture(scope="module")
def stack(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API)
    return live


@pytest.fixture
def running(stack: Live) -> Iterator[Live]:
    yield stack
    stack.be_honest()
    stack.end(programs.WORKER)


def judged(bookings: list[UUID]) -> set[tuple[int, int, int, bool]]:
    """How often each job's lease was lost, and what is held against it."""
    jobs = [acceptance.job_of(booking) for booking in bookings]
    rows = models.Job.objects.filter(id__in=jobs)
    return set(rows.values_list("leases_lost", "losses", "strikes", "suspect"))


def hang(live: Live, count: int, fired: Path) -> list[UUID]:
    """Bookings in the hands of one child that stands still, all captured by the provider, none with an answer stored."""
    armed = {
        crashpoints.ARM_VARIABLE: "call.after=pause@1",
        crashpoints.ONCE_VARIABLE: str(fired),
    }
    live.rule("delay", match="capture", seconds=0.4)
    agent = live.agent()
    bookings = agent.book_many(count)
    live.start(programs.WORKER, concurrency=1, env={**PERIODS, **armed})
    acceptance.until(fired.exists, SECONDS)
    acceptance.until(lambda: all(live.kinds(b) == ["capture"] for b in bookings), SECONDS)
    assert acceptance.in_flight(bookings, CAPTURE) == count
    return bookings


@pytest.mark.parametrize(
    ("count", "held_against"),
    [(1, (1, 0, 1, False)), (6, (1, 1, 0, False))],  # alone: a strike; in company: forgiven once
    ids=["alone", "in company"],
)
def test_a_child_that_hangs_is_killed_and_what_it_had_done_is_found(
    running: Live, tmp_path: Path, count: int, held_against: tuple[int, int, int, bool]
) -> None:
    began = time.monotonic()
    bookings = hang(running, count, tmp_path / "fired")
    running.rule("hang", match="probe")  # nobody learns anything, so that the verdict stands still
    with deaths.Death(running.pool()) as child:
        took = child.wait(LIMIT_SECONDS + LATE_SECONDS) - began
    print(f"killed {took:.1f} s after its worker was started")  # noqa: T201  a measured figure
    assert "Hard time limit (8" in running.stack.log(programs.WORKER).read_text()
    acceptance.until(
        lambda: judged(bookings) == {held_against}, SECONDS, lambda: str(judged(bookings))
    )

    running.be_honest()
    running.ended(bookings, "confirmed", SECONDS)
    assert running.stack.ended() == {}, "the worker itself goes on"
    for booking in bookings:
        assert acceptance.attempts(booking) == {(step, "forward"): 1 for step in STEPS}
        assert running.kinds(booking) == ["capture", "ticket"]
        assert [r["kind"] for r in running.requests(booking)].count("capture") == 1
    assert running.net(bookings) == 20_000 * count
    assert judged(bookings) == {(1, 0, 0, False)}, "a receipt clears what was held against it"
    running.assert_books_agree(bookings)

"""A worker that runs out of file descriptors sends nothing, crashes nowhere, and goes on when it has some again."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from config import programs
from ledger import models
from tests.acceptance import live as acceptance
from tests.acceptance.live import CAPTURE, Live

pytestmark = pytest.mark.timeout(120)
BOOKINGS = 20


@pytest.fixture(scope="module")
def running(live: Live) -> Live:
    # A patience of several seconds: the budget of an operation must outlast the drought.
    live.start(programs.SANDBOX)
    env = {"BACKOFF_SECONDS": "1", "BACKOFF_SECONDS_MAX": "2"}
    live.start(programs.API, programs.WORKER, programs.SWEEPS, programs.BEAT, env=env)
    return live


@contextmanager
def without_descriptors(pids: list[int]) -> Iterator[None]:
    """Within the block, these processes can open nothing more."""
    before = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in pids}
    for pid in pids:
        used = {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
        least_free = next(number for number in count() if number not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (least_free, before[pid][1]))
    try:
        yield
    finally:
        for pid, limits in before.items():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def unsent() -> int:
    return models.Receipt.objects.filter(step=CAPTURE, outcome="not_sent").count()


def test_nothing_is_sent_nothing_dies_and_all_of_it_is_confirmed_later(running: Live) -> None:
    agent = running.agent()
    agent.book()  # its connections to database and broker are open from here on
    acceptance.until(lambda: models.Job.objects.filter(state="confirmed").exists(), 15)
    children = running.pool()
    running.control(
        "latency", mean_seconds=0.5
    )  # many at once: a connection that is there serves one
    with without_descriptors(children):
        bookings = agent.book_many(BOOKINGS)
        acceptance.until(lambda: unsent() >= BOOKINGS // 2, 20, lambda: running._explain(unsent()))
    running.be_honest()
    running.ended(bookings, "confirmed", 40)
    assert running.pool() == children, "the children that were short of descriptors are still there"
    running.assert_books_agree(bookings)

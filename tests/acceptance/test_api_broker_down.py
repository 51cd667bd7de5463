"""The API accepts bookings in time with a broker that is dead or that never answers, and the sweep finds the jobs."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from config import programs
from tests.acceptance import live as acceptance
from tests.acceptance.live import Live

pytestmark = pytest.mark.timeout(90)
ACCEPTED_SECONDS = 2.0
SECONDS = 20.0


@pytest.fixture(scope="module")
def running(live: Live) -> Live:
    """The workers and beat have a good broker."""
    live.start(programs.SANDBOX)
    live.start(programs.WORKER, programs.SWEEPS, programs.BEAT)
    return live


@contextlib.contextmanager
def broker(*, is_silent: bool) -> Iterator[int]:
    """The port of a broker that takes connections and says nothing, or of one that takes none."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if is_silent:
            listener.listen(64)
        yield listener.getsockname()[1]


@pytest.mark.parametrize("is_silent", [False, True])
def test_bookings_are_accepted_in_time_and_found_by_the_sweep(
    running: Live, is_silent: bool
) -> None:
    with broker(is_silent=is_silent) as port:
        running.start(programs.API, env={"BROKER_URL": f"redis://127.0.0.1:{port}/0"})
        agent = running.agent()
        bookings, slowest = [], 0.0
        for _ in range(5):
            begun = time.monotonic()
            bookings.append(agent.book())
            slowest = max(slowest, time.monotonic() - begun)
        print(f"slowest acceptance {slowest:.3f} s")  # noqa: T201  a measured figure
        assert slowest <= ACCEPTED_SECONDS
        # The control: publishing was tried, and failed.
        log = running.stack.log(programs.API)
        acceptance.until(lambda: "ticket.failed" in log.read_text(), SECONDS)
        running.ended(bookings, "confirmed", SECONDS)
        assert {tuple(running.kinds(booking)) for booking in bookings} == {("capture", "ticket")}
        running.assert_books_agree(bookings)
        running.end(programs.API)
        log.unlink()

"""Every process leaves when its container is stopped: TERM, its work done or given back, status 0, nobody left behind.

And where whoever stops it signals the whole group, children die in the middle of a step: it is done once all the same.
"""

import signal
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from config import programs
from ledger import models
from tests import psql
from tests.acceptance import deaths
from tests.acceptance import live as acceptance
from tests.acceptance.live import CAPTURE, LATE, SOON, Live

pytestmark = pytest.mark.timeout(120)
GRACE_SECONDS = 30.0  # a fifth of what containers get, on a machine that is busy
ENDED_SECONDS = 30.0
WAITS = (CAPTURE, "forward", "throttled")
# Nobody else asks the API meanwhile; what it asks the database last in each look is its COMMIT.
HAS_ASKED = """
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query_start > %s
    AND application_name = 'amends-api')
"""


@pytest.fixture(scope="module")
def stack(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API, programs.WORKER, programs.COMPENSATION, programs.SWEEPS, programs.BEAT)
    return live


@pytest.fixture
def running(stack: Live) -> Iterator[Live]:
    yield stack
    stack.be_honest()
    stack.control("release")


def book_and_be_under_way(live: Live, manner: Mapping[str, Any]) -> list[Any]:
    """Some bookings, of which the last is with its provider now: only that one, so that nobody waits for it too long."""
    agent = live.agent()
    bookings = agent.book_many(3)
    live.ended(bookings, "confirmed", ENDED_SECONDS)
    live.rule(match="capture", times=1, **manner)
    bookings.append(agent.book())
    acceptance.until(lambda: acceptance.in_flight(bookings, CAPTURE) == 1, 15)
    return bookings


@pytest.mark.parametrize("name", [programs.BEAT, *programs.WORKERS, programs.API])
def test_told_to_stop_it_leaves_with_status_0_and_what_was_under_way_ends_once(
    running: Live, name: str
) -> None:
    bookings = book_and_be_under_way(running, SOON)
    started = running.started(name)
    running.stack.kill(name, signal.SIGTERM)
    assert running.stack.wait_ended(name, GRACE_SECONDS) == 0
    assert not deaths.alive(started)
    running.end(name)
    running.start(name)
    running.assert_each_once(bookings, ENDED_SECONDS)


def test_the_api_answers_who_is_waiting_before_it_leaves(running: Live) -> None:
    running.rule("throttle", match="capture", times=1, retry_after=5)
    agent = running.agent()
    booking = agent.book()
    acceptance.until(lambda: WAITS in acceptance.outcomes(booking), 15)
    headers = {**agent.headers, "Prefer": "wait=3"}
    with psql.connected() as watching:
        begun = watching.execute("SELECT clock_timestamp()").fetchone()
        assert begun is not None, "a server has the time"
        asked = psql.Thread(lambda: running.api.get(f"/v1/bookings/{booking}", headers=headers))
        psql.await_true(watching, HAS_ASKED, begun)
    running.stack.kill(programs.API, signal.SIGTERM)
    answer = asked.result()
    assert (answer.status_code, answer.json()["id"]) == (200, str(booking))
    assert answer.headers["Preference-Applied"] == "wait=3"
    assert running.stack.wait_ended(programs.API, GRACE_SECONDS) == 0
    running.end(programs.API)
    running.start(programs.API)
    running.assert_each_once([booking], ENDED_SECONDS)


@pytest.mark.parametrize("manner", [SOON, LATE], ids=["soon", "late"])
def test_where_the_whole_group_is_told_the_step_is_done_once_all_the_same(
    running: Live, manner: dict[str, Any]
) -> None:
    bookings = book_and_be_under_way(running, manner)
    started = running.started(programs.WORKER)
    running.stack.kill(programs.WORKER, signal.SIGTERM, group=True)
    running.stack.wait_ended(programs.WORKER, GRACE_SECONDS)
    acceptance.until(lambda: not deaths.alive(started), GRACE_SECONDS)
    assert acceptance.in_flight(bookings, CAPTURE) == 1, "a step was cut"
    running.end(programs.WORKER)
    running.start(programs.WORKER)
    running.ended(bookings, "confirmed", ENDED_SECONDS)
    running.control("release")
    running.assert_each_once(bookings, ENDED_SECONDS)
    lost = models.Job.objects.filter(booking__in=bookings).values_list("leases_lost", flat=True)
    assert max(lost) >= 1

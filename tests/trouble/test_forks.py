"""No connection of a parent's reaches its children, though its code has asked the database before they were forked."""

import signal
from typing import Any

import pytest

from config import programs
from tests import psql
from tests.acceptance import deaths
from tests.acceptance import live as acceptance
from tests.acceptance.live import Live

pytestmark = pytest.mark.timeout(120)
SECONDS = 45.0
CHILDREN = 2
ASKED_EARLY, PARENTS = "tests.trouble.asked_early", "asked-early"
SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
)
NONE_OF_PARENT = f"SELECT NOT EXISTS ({SESSIONS})"


@pytest.fixture(scope="module")
def running(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API, programs.SWEEPS, programs.BEAT)
    inner: Any = live.stack
    command = [*programs.command(programs.WORKER, inner._place), "-I", ASKED_EARLY]
    inner._running[programs.WORKER] = inner._spawn(programs.WORKER, command, env={})
    live.stack.wait_ready(programs.WORKER)
    return live


def test_each_child_has_a_session_of_its_own_and_none_of_its_parents(running: Live) -> None:
    """Also the child that takes the place of one that was killed."""
    agent = running.agent(capacity=100)
    with psql.connected() as watch:
        for _ in range(2):
            psql.await_true(watch, NONE_OF_PARENT, [PARENTS])
            running.rule("delay", match="capture", seconds=0.2, times=20)
            booked = agent.book_many(20)
            running.assert_each_once(booked, SECONDS)
            assert watch.execute(NONE_OF_PARENT, [PARENTS]).fetchone() == (True,)
            sessions = watch.execute(SESSIONS, ["amends-worker"]).fetchall()
            assert 1 <= len(sessions) <= CHILDREN + 2, "children, who sweeps, and the watcher"
            deaths.signal_all(running.pool()[:1], signal.SIGKILL)
            acceptance.until(lambda: len(running.pool()) == CHILDREN, SECONDS)
    log = running.stack.log(programs.WORKER).read_text()
    for trouble in ("InterfaceError", "OperationalError"):
        assert trouble not in log

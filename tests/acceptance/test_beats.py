"""Beat doubled, restarted every second, and dead: jobs are done once, and a dead beat is seen and loses nothing.

The API has no broker here, so that nobody rings but the sweeps: without a beat that works, nothing would go on.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import kombu
import pytest

import config.celery
from config import programs, supervisor
from ledger import models
from ledger.states import Lane
from tests.acceptance import live as acceptance
from tests.acceptance.live import Live

pytestmark = pytest.mark.timeout(180)
SECONDS = 30.0
RESTARTS = 3
BACKLOG = 400
OTHER_SETTINGS = {
    "SWEEP_SECONDS_RARE": "1"
}  # as often as the rest, so that each sweep's age can be waited for


@pytest.fixture(scope="module")
def running(live: Live) -> Iterator[Live]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # it takes no connection
        nowhere = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        live.start(programs.SANDBOX)
        live.start(programs.API, env={"BROKER_URL": nowhere})
        live.start(*programs.WORKERS, env=OTHER_SETTINGS)
        yield live


@contextmanager
def beat(live: Live) -> Iterator[None]:
    live.start(programs.BEAT, env=OTHER_SETTINGS)
    try:
        yield
    finally:
        live.end(programs.BEAT)
        for schedule in live.stack.workdir.glob("beat-schedule*"):
            schedule.unlink()


def answers(live: Live) -> bool:
    """Whether a beat says that it ticks, as an operator asks."""
    asked = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "config.celery", "inspect", "ping", "--timeout", "3"],
        env={**os.environ, "BROKER_URL": live.broker_url}, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    return "celerybeat@" in asked.stdout


def test_a_beat_says_that_it_ticks_and_one_that_is_gone_says_nothing(running: Live) -> None:
    with beat(running):
        acceptance.until(lambda: answers(running), SECONDS)
    assert not answers(running)


@contextmanager
def second_beat(live: Live, place: Path) -> Iterator[None]:
    """Another one, with a schedule of its own, as after a failover that was none."""
    stack: Any = live.stack
    command = programs.command(programs.BEAT, stack._place)
    command[command.index("--schedule") + 1] = str(place / "schedule")
    env = programs.environment(programs.BEAT, stack._place, stack._env) | OTHER_SETTINGS
    with (place / "log").open("wb") as output:
        process: subprocess.Popen[bytes] = stack._guardian.start(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=supervisor.ROOT,
            env=env,
        )
    try:
        acceptance.until(lambda: any(place.glob("schedule*")), SECONDS, (place / "log").read_text)
        yield
    finally:
        process.kill()
        process.wait(10)
        stack._guardian.forget(process.pid)


def told(live: Live) -> tuple[int, dict[str, Any]]:
    """What `manage.py sweeps` exits with, and says."""
    inner: Any = live.stack
    done = subprocess.run(
        [sys.executable, "manage.py", "sweeps", "--json"],
        cwd=supervisor.ROOT,
        env={**os.environ, **inner._env, **OTHER_SETTINGS},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def is_alarmed(live: Live) -> bool:
    return told(live)[0] == 1


def stale(live: Live) -> int:
    """How many messages of the backlog are left."""
    messages: Any = live.broker.lrange("sweeps", 0, -1)
    return sum(b'"stale-' in message for message in messages)


def sent(live: Live) -> list[dict[str, Any]]:
    """The headers of what lies in the sweeps' own lanes."""
    lanes: Any = [live.broker.lrange(lane.value, 0, -1) for lane in (Lane.SWEEPS, Lane.WEBHOOKS)]
    return [json.loads(raw)["headers"] for raws in lanes for raw in raws]


def test_two_beats_at_once(running: Live, tmp_path: Path) -> None:
    agent = running.agent()
    with beat(running), second_beat(running, tmp_path):
        bookings = agent.book_many(10)
        running.assert_each_once(bookings, SECONDS)
    assert agent.small.taken()[:1] == [10]


def test_a_beat_that_is_killed_and_started_again_all_the_time(running: Live) -> None:
    """Each start sends what was due while it was away; nobody waits for a beat that lives long."""
    agent, bookings = running.agent(), list[UUID]()
    for _ in range(RESTARTS):
        with beat(running):
            bookings += agent.book_many(2)
    with beat(running):
        running.assert_each_once(bookings, SECONDS)


def test_a_dead_beat_is_seen_loses_nothing_and_is_forgotten_once_it_is_back(running: Live) -> None:
    agent = running.agent()
    with beat(running):
        running.assert_each_once(agent.book_many(1), SECONDS)
        acceptance.until(lambda: not is_alarmed(running), SECONDS, lambda: str(told(running)))
    bookings = agent.book_many(5)
    acceptance.until(lambda: is_alarmed(running), SECONDS, lambda: str(told(running)))
    states = models.Job.objects.filter(submission__tenant=agent.tenant).values_list(
        "state", flat=True
    )
    assert sorted(states) == ["confirmed", *["waiting"] * 5]
    with beat(running):
        running.assert_each_once(bookings, SECONDS)
        acceptance.until(lambda: not is_alarmed(running), SECONDS, lambda: str(told(running)))


def test_a_backlog_of_sweep_messages_holds_up_nobody(running: Live) -> None:
    """Workers were away while beat went on: what is stale expires; of the rest the first passes do the work, and what comes
    right after them costs one look each.
    """
    running.end(programs.SWEEPS)
    agent, names = running.agent(), sorted(config.celery.app.conf.beat_schedule)
    with beat(running):
        acceptance.until(lambda: {one["task"] for one in sent(running)} == set(names), SECONDS)
    assert [one["task"] for one in sent(running) if not one["expires"]] == []
    for name in (
        programs.WORKER,
        programs.COMPENSATION,
    ):  # what beat sends keeps to lanes of its own
        received = running.stack.log(name).read_text()
        assert [task for task in names if f"Task {task}[" in received] == []
    with kombu.Connection(running.broker_url) as broker:
        for number in range(BACKLOG):
            config.celery.app.send_task(
                names[number // 2 % len(names)],
                queue=Lane.SWEEPS.value,
                task_id=f"stale-{uuid4()}",
                expires=0.001 if number % 2 else 900,
                connection=broker,
            )
    assert stale(running) == BACKLOG
    bookings = agent.book_many(3)
    with beat(running):
        running.start(programs.SWEEPS, env=OTHER_SETTINGS)
        running.assert_each_once(bookings, SECONDS)
        acceptance.until(lambda: not stale(running), SECONDS)

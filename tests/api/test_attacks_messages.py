"""Messages that somebody else put into the broker: a worker reads JSON, knows its own tasks, takes a lane and nothing more.

Rows decide what is done, so that a forged message does nothing that the sweep would not do. Real workers; the sandbox's
books are the second witness.
"""

import json
import pickle
from pathlib import Path
from typing import Any, override
from uuid import UUID, uuid4

import kombu
import pytest

from config import programs
from ledger import models, sql, tickets
from tests.acceptance.conftest import live
from tests.acceptance.live import Live, job_of, until

__all__ = ["live"]
pytestmark = pytest.mark.timeout(120)
SECONDS = 30.0
FORWARD = "forward"
ROWS = """
SELECT md5(string_agg(j::text || coalesce((SELECT string_agg(r::text, '|' ORDER BY r.id) FROM ledger_receipt r
    WHERE r.job_id = j.id), ''), '|' ORDER BY j.id)) FROM ledger_job j
"""


class Evil:
    """Touches a file where somebody unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @override
    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def running(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API, programs.WORKER)
    return live


def forge(live: Live, task: str, body: Any, **how: Any) -> None:
    """A message as anybody can write it who reaches the broker."""
    headers = {"lang": "py", "task": task, "id": str(uuid4()), "argsrepr": "", "kwargsrepr": ""}
    with kombu.Connection(live.broker_url) as broker:
        producer = broker.Producer()
        producer.publish(body, routing_key=FORWARD, headers=headers, retry=False, **how)


def arguments(*args: Any, **kwargs: Any) -> list[Any]:
    return [args, kwargs, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]


def rows() -> str:
    return str(sql.fetch(ROWS)[0][0])


def assert_nothing_but_refused(live: Live, pids: dict[int, str], seen: str) -> None:
    until(lambda: live.is_silent(FORWARD), SECONDS)
    assert rows() == seen
    assert live.started(programs.WORKER) == pids, (
        "the worker and its pool are those that there were"
    )
    booking = live.agent().book()
    live.ended([booking], "confirmed", SECONDS)
    assert live.kinds(booking) == ["capture", "ticket"]
    live.assert_books_agree([booking])


@pytest.fixture
def victim(running: Live) -> UUID:
    """A booking of another tenant that has ended."""
    booking = running.agent().book()
    running.ended([booking], "confirmed", SECONDS)
    until(lambda: running.is_silent(FORWARD), SECONDS)
    return booking


def test_a_pickle_is_not_opened(running: Live, victim: UUID, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    body, pids, seen = pickle.dumps(Evil(touched)), running.started(programs.WORKER), rows()
    assert pickle.loads(pickle.dumps(Evil(tmp_path / "control"))) is None  # noqa: S301  the control
    assert (tmp_path / "control").exists()
    for kind in (
        "application/x-python-serialize",
        "application/x-yaml",
        "application/data",
        "application/text",
    ):
        how = {"content_type": kind, "content_encoding": "binary"}
        forge(running, tickets.TASK, body, **how)
    forge(running, tickets.TASK, b"{", content_type="application/json", content_encoding="utf-8")
    assert_nothing_but_refused(running, pids, seen)
    assert not touched.exists()


@pytest.mark.parametrize(
    "task",
    ["os.system", "ledger.engine.drive", "bookings.models.Booking.delete", "", "../../tmp/x", "drive" * 10_000],
    ids=lambda task: task[:20],
)  # fmt: skip
def test_a_task_that_is_none_of_ours_is_not_run(running: Live, victim: UUID, task: str) -> None:
    pids, seen = running.started(programs.WORKER), rows()
    forge(running, task, arguments("touch /tmp/x"), serializer="json")
    assert_nothing_but_refused(running, pids, seen)


def test_a_ticket_names_a_lane_and_nothing_else_is_taken(running: Live, victim: UUID) -> None:
    job = str(job_of(victim))
    pids, seen = running.started(programs.WORKER), rows()
    for body in (
        arguments(),
        arguments("nonsense"),
        arguments(job),
        arguments(FORWARD, job),
        arguments(FORWARD, job=job, fence=0, tenant="other"),
        arguments(lane={"$ne": 1}),
        arguments("'; DELETE FROM ledger_job; --"),
        arguments("x" * 1_000_000),
        arguments(None),
        ["not", "a", "message"],
        {"args": [FORWARD], "kwargs": {}},
    ):
        forge(running, tickets.TASK, body, serializer="json")
    assert_nothing_but_refused(running, pids, seen)


def test_what_comes_back_of_a_task_can_start_no_other(running: Live, victim: UUID) -> None:
    """Celery would call back, chain and answer where a message says so: nothing of it reaches a row."""
    pids, seen = running.started(programs.WORKER), rows()
    more = {"task": "recovery.retain", "args": [], "kwargs": {}, "options": {"queue": FORWARD}}
    body = [
        [FORWARD],
        {},
        {"callbacks": [more], "errbacks": [more], "chain": [more], "chord": None},
    ]
    forge(running, tickets.TASK, body, serializer="json", reply_to="elsewhere")
    assert_nothing_but_refused(running, pids, seen)
    assert models.Job.objects.filter(id=job_of(victim)).exists()


TAG = {"delivery_tag": "forged", "delivery_info": {"exchange": "", "routing_key": FORWARD}}
GOOD = {
    "content-type": "application/json",
    "content-encoding": "utf-8",
    "headers": {"task": tickets.TASK},
}


def headed(**headers: Any) -> bytes:
    """A task with such headers, and nothing else wrong with it."""
    whole = {"headers": {"task": tickets.TASK, **headers}, "body": json.dumps(arguments(FORWARD))}
    return json.dumps({**GOOD, **whole, "properties": TAG}).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xfe\x00",
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b"null",
        b'"forward"',
        b"[" * 200_000,
        json.dumps({**GOOD, "properties": {}}).encode(),
        json.dumps({**GOOD, "body": "e30=", "properties": {**TAG, "body_encoding": "rot13"}}).encode(),
        json.dumps({**GOOD, "body": "!", "properties": {**TAG, "body_encoding": "base64"}}).encode(),
        json.dumps({**GOOD, "body": [1], "properties": TAG}).encode(),
        json.dumps({**GOOD, "headers": "x", "body": "[]", "properties": TAG}).encode(),
        json.dumps({**GOOD, "headers": None, "body": "[]", "properties": TAG}).encode(),
        json.dumps({**GOOD, "content-encoding": "nonsense", "body": "[]", "properties": TAG}).encode(),
        json.dumps({**GOOD, "body": "[]", "properties": {**TAG, "delivery_tag": {"a": 1}}}).encode(),
        json.dumps({**GOOD, "body": "[]", "properties": {**TAG, "delivery_info": "x"}}).encode(),
        json.dumps({**GOOD, "body": json.dumps(arguments(FORWARD)), "properties": TAG}).encode(),
        headed(id=1),
        headed(id="1", eta=[]),
        headed(id="2", expires={}),
        headed(id="3", retries="x", timelimit="x", root_id=[], parent_id=1, group={}, stamps=1),
        headed(id="4", eta="99999999999-01-01"),
    ],
    ids=range(23),
)  # fmt: skip
def test_what_is_no_message_at_all_ends_no_worker(running: Live, victim: UUID, raw: bytes) -> None:
    pids, seen = running.started(programs.WORKER), rows()
    running.broker.lpush(FORWARD, raw)
    assert_nothing_but_refused(running, pids, seen)

"""Messages that come again, and jobs that wait: a second delivery of a run does nothing twice, and what waits is a row.

A consumer with a visibility timeout shorter than a run, which `manage.py check` refuses, gives back the messages of runs
that are still at work.
"""

import json
import re
from collections import Counter
from typing import Any

import kombu
import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from config import programs
from ledger import models
from tests.acceptance import live as acceptance
from tests.acceptance.live import CAPTURE, TICKET, Live

pytestmark = pytest.mark.timeout(120)
SECONDS = 45.0
FORWARD = "forward"
FEW_SLOTS = {"SLOTS": "2"}
RECEIVED = re.compile(r"Task ledger\.drive\[([0-9a-f-]+)\] received")
RESTARTS = 2


@pytest.fixture(scope="module")
def running(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API)
    live.start(programs.WORKER, programs.SWEEPS, programs.BEAT, env=FEW_SLOTS)
    return live


def deliveries(live: Live) -> Counter[str]:
    """How often each ticket was received."""
    return Counter(RECEIVED.findall(live.stack.log(programs.WORKER).read_text()))


def give_back(live: Live) -> None:
    """What a consumer does now and then: whatever has been in somebody's hands for longer than a second is queued again."""
    with kombu.Connection(live.broker_url, transport_options={"visibility_timeout": 1}) as broker:
        channel: Any = broker.default_channel
        channel.qos.restore_visible(interval=1)


def messages(live: Live) -> list[dict[str, Any]]:
    """The headers of every message that the broker has, also of those in somebody's hands."""
    queued = [
        json.loads(raw)
        for lane in ("forward", "compensation")
        for raw in live.broker.lrange(lane, 0, -1)
    ]
    held = [json.loads(raw)[0] for raw in live.broker.hvals("unacked")]
    return [message["headers"] for message in queued + held]


def test_a_run_longer_than_the_visibility_timeout_is_delivered_again_and_does_nothing_twice(
    running: Live,
) -> None:
    for kind in ("capture", "ticket"):
        running.rule("delay", match=kind, seconds=0.6)
    agent = running.agent(capacity=100)
    booked = agent.book_many(24)

    def is_delivered_again() -> bool:
        give_back(running)
        return max(deliveries(running).values(), default=0) > 1

    acceptance.until(is_delivered_again, SECONDS)
    running.be_honest()
    running.ended(booked, "confirmed", SECONDS)
    acceptance.until(running.is_silent, SECONDS)  # every copy was acknowledged, too
    assert {tuple(running.kinds(booking)) for booking in booked} == {("capture", "ticket")}
    for booking in booked:
        sent = Counter(request["kind"] for request in running.requests(booking))
        tried = acceptance.attempts(booking)
        assert (sent["capture"], sent["ticket"]) == (
            tried[CAPTURE, FORWARD],
            tried[TICKET, FORWARD],
        )
        assert running.job(booking).leases_lost == 0
    running.assert_books_agree(booked)


def test_such_a_timeout_is_refused(settings: Any) -> None:
    settings.VISIBILITY_TIMEOUT_SECONDS = settings.TASK_TIME_LIMIT_SECONDS
    with pytest.raises(
        SystemCheckError, match="TASK_TIME_LIMIT_SECONDS < VISIBILITY_TIMEOUT_SECONDS"
    ):
        call_command("check")


def test_what_waits_for_its_next_try_is_a_row_and_outlives_its_worker_and_the_broker(
    running: Live,
) -> None:
    """The provider puts them all off; meanwhile the worker is told to leave and started again, and the broker emptied."""
    running.rule("throttle", match="capture", retry_after=4)
    agent = running.agent(capacity=100)
    booked = agent.book_many(20)
    jobs = models.Job.objects.filter(tenant=agent.tenant)
    acceptance.until(lambda: jobs.filter(state="waiting", seq__gt=1).count() >= 10, SECONDS)
    for number in range(RESTARTS):
        assert [headers["eta"] for headers in messages(running) if headers["eta"]] == []
        running.stack.stop(programs.WORKER)  # TERM, and an end in order
        if number == 0:
            running.broker.flushdb()
        running.start(programs.WORKER, env=FEW_SLOTS)
    assert jobs.exclude(state="confirmed").count() == len(booked)
    running.be_honest()
    running.ended(booked, "confirmed", SECONDS)
    assert {tuple(running.kinds(booking)) for booking in booked} == {("capture", "ticket")}
    running.assert_books_agree(booked)

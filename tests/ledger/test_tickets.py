"""A ticket is a doorbell: nobody waits for the broker or fails by it, bursts are coalesced, the last ring is never lost."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

import pytest
import redis
from prometheus_client import REGISTRY

from ledger import crashpoints, engine, models, submission, tickets
from recovery import sweeps
from tests import factories, sagas

LANE = "forward"


def published(result: str) -> float:
    labels = {"lane": LANE, "result": result}
    return REGISTRY.get_sample_value("ledger_publications_total", labels) or 0.0


@pytest.fixture
def bell(monkeypatch: pytest.MonkeyPatch) -> tickets._Bell:
    """A doorbell of the test's own, which no earlier failure has silenced."""
    own = tickets._Bell()
    monkeypatch.setattr(tickets, "_bell", own)
    return own


@pytest.fixture
def queue(settings: Any) -> Iterator[redis.Redis]:
    """The broker, with an empty lane."""
    url = urlparse(settings.BROKER_URL)
    if url.scheme == "redis+socket":
        number = int(parse_qs(url.query).get("virtual_host", ["0"])[0])
        client = redis.Redis(unix_socket_path=unquote(url.path), db=number)
    else:
        client = redis.Redis.from_url(settings.BROKER_URL)
    with client:
        client.delete(LANE)
        yield client
        client.delete(LANE)


@pytest.fixture
def dead(settings: Any) -> None:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        settings.BROKER_URL = f"redis://127.0.0.1:{free.getsockname()[1]}/0"


@pytest.fixture
def silent(settings: Any) -> Iterator[None]:
    """A broker that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        settings.BROKER_URL = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        yield


@pytest.mark.parametrize("broker", ["dead", "silent"])
def test_a_submission_is_accepted_in_time_without_a_broker_and_found_by_the_sweep(
    broker: str,
    queue: redis.Redis,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> None:
    request.getfixturevalue("worker_role")
    monkeypatch.setattr(tickets, "_bell", tickets._Bell())
    working, failed = settings.BROKER_URL, published("failed")
    request.getfixturevalue(broker)
    with sagas.trip(sagas.World()) as trip:
        tenant = factories.TenantFactory.create()
        began = time.monotonic()
        accepted = submission.submit(tenant_id=tenant.id, key="k", saga=trip, request={}, input={})
        assert time.monotonic() - began < 2.0
        assert tickets.flush(5.0)
        assert time.monotonic() - began < 2.0
    assert (accepted.created, models.Job.objects.get().state) == (True, "waiting")
    assert (published("failed") - failed, queue.llen(LANE)) == (1, 0)
    settings.BROKER_URL = working
    monkeypatch.setattr(tickets, "_bell", tickets._Bell())  # its silence is over
    assert sweeps.ring().count == 1
    assert tickets.flush(5.0)
    assert queue.llen(LANE) == 1


def test_the_sweep_rings_for_nobody_when_there_is_no_work(
    worker_role: None, bell: tickets._Bell, queue: redis.Redis
) -> None:
    assert sweeps.ring().count == 0
    assert bell.flush(5.0)
    assert queue.llen(LANE) == 0


def test_a_run_that_stops_before_its_lane_is_empty_rings_for_the_next(
    worker_role: None, bell: tickets._Bell, queue: redis.Redis, settings: Any
) -> None:
    settings.RUN_SECONDS = 0.0
    with sagas.trip(sagas.World()) as trip:
        factories.submit(trip)
        assert bell.flush(5.0)
        queue.delete(LANE)
        assert engine.drive(LANE) == 0
    assert bell.flush(5.0)
    assert queue.llen(LANE) == 1


def test_a_ticket_carries_the_lane_and_no_job(
    worker_role: None, bell: tickets._Bell, queue: redis.Redis
) -> None:
    with sagas.trip(sagas.World()) as trip:
        job = factories.submit(trip)
    assert bell.flush(5.0)
    (message,) = queue.lrange(LANE, 0, -1)
    assert str(job).encode() not in message
    assert b"ledger.drive" in message


def test_a_burst_is_coalesced_and_its_last_ring_is_not_lost(
    bell: tickets._Bell, queue: redis.Redis, settings: Any
) -> None:
    settings.RING_SECONDS = 0.2
    sent: list[float] = []
    with crashpoints.armed("publish.before", lambda _p: sent.append(time.monotonic())):
        began = time.monotonic()
        for _ in range(200):
            bell.ring(LANE)
            threading.Event().wait(0.001)
        last = time.monotonic()
        assert bell.flush(5.0)
    most = (sent[-1] - began) / 0.2 + 2
    assert 2 <= len(sent) <= most
    assert sent[-1] >= last - 0.001
    assert queue.llen(LANE) == len(sent)


def test_rings_that_are_far_apart_are_each_sent_at_once(
    bell: tickets._Bell, queue: redis.Redis, settings: Any
) -> None:
    settings.RING_SECONDS = 0.0
    for count in (1, 2, 3):
        bell.ring(LANE)
        assert bell.flush(5.0)
        assert queue.llen(LANE) == count


def test_lanes_are_coalesced_apart(bell: tickets._Bell, queue: redis.Redis) -> None:
    queue.delete("compensation")
    bell.ring(LANE)
    bell.ring("compensation")
    assert bell.flush(5.0)
    assert (queue.llen(LANE), queue.llen("compensation")) == (1, 1)
    queue.delete("compensation")


@pytest.mark.parametrize(("silence", "tries"), [(60.0, 1), (0.0, 3)])
def test_a_failure_silences_the_process_for_a_while(
    database: None, bell: tickets._Bell, dead: None, settings: Any, silence: float, tries: int
) -> None:
    settings.PUBLISH_SILENCE_SECONDS, settings.RING_SECONDS = silence, 0.0
    failed, unsaid = published("failed"), published("silent")
    for _ in range(3):
        bell.ring(LANE)
        assert bell.flush(5.0)
    assert published("failed") - failed == tries
    assert published("silent") - unsaid == 3 - tries


def test_publishing_goes_on_after_the_silence(
    bell: tickets._Bell, queue: redis.Redis, settings: Any, request: pytest.FixtureRequest
) -> None:
    working = settings.BROKER_URL
    request.getfixturevalue("silent")
    settings.PUBLISH_SILENCE_SECONDS = 0.0
    bell.ring(LANE)
    assert bell.flush(5.0)
    settings.BROKER_URL = working
    bell.ring(LANE)
    assert bell.flush(5.0)
    assert queue.llen(LANE) == 1


@pytest.mark.parametrize(("jobs", "rings"), [(2, 1), (1, 0)])
def test_a_run_whose_claim_came_back_full_rings_once_more(
    worker_role: None, bell: tickets._Bell, queue: redis.Redis, settings: Any, jobs: int, rings: int
) -> None:
    settings.SLOTS = 2
    with sagas.trip(sagas.World()) as trip:
        tenant = factories.TenantFactory.create()
        for _ in range(jobs):
            models.Job.objects.create(tenant=tenant, saga=trip.name, version=1, input={}, lane=LANE)
        engine.drive(LANE)
    assert bell.flush(5.0)
    assert queue.llen(LANE) == rings
    assert set(models.Job.objects.values_list("state", flat=True)) == {"confirmed"}

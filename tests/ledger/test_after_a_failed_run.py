"""A run that ends in an error leaves its calls with the process's pool: the next run takes them in, and is not deaf."""

import threading
import time

import pytest
from pytest_django.fixtures import Settings

from ledger import crashpoints, engine, models, outcomes
from ledger.saga import Call
from tests import drives, factories, sagas

pytestmark = pytest.mark.usefixtures("worker_role")
SLOTS = 2
WAIT_SECONDS = 10.0


def test_slots_of_a_failed_run_are_free_again_and_what_its_calls_brought_is_seen(
    settings: Settings,
) -> None:
    settings.SLOTS = SLOTS
    settings.HEARTBEAT_SECONDS = 0.0  # a renewal in every turn
    world, go = sagas.World(), threading.Event()

    def slow(call: Call) -> outcomes.Confirmed:
        assert go.wait(WAIT_SECONDS)
        return sagas.confirm(call)

    def fail(_point: str) -> None:
        if world.times("room:forward") == SLOTS:  # both slots are taken
            raise crashpoints.CrashPointError("renew.before")

    world.says("room:forward", *[slow] * SLOTS)
    with sagas.trip(world) as trip:
        lost = [factories.submit(trip) for _ in range(SLOTS)]
        with crashpoints.armed("renew.before", fail), pytest.raises(crashpoints.CrashPointError):
            engine.drive("forward")
        job = factories.submit(trip)
        go.set()
        deadline = time.monotonic() + WAIT_SECONDS
        while not engine.drive("forward"):
            assert time.monotonic() < deadline, "the slots of the failed run stay taken"
        assert drives.state(job) == "confirmed"
        seen = models.Sighting.objects.filter(job_id__in=lost, kind="late", outcome="confirmed")
        assert seen.count() == SLOTS

"""A LOCAL handler that is too slow for a statement: it fails alone and in bounded time, and holds up nobody else."""

import time
from typing import Any

import pytest

from ledger import engine, models, outcomes, saga, sql
from ledger.saga import Call
from tests import drives, factories, hot_rooms, psql

pytestmark = [pytest.mark.usefixtures("worker_role"), pytest.mark.timeout(60)]
LEASE_SECONDS = 3.0
NEIGHBOURS = 6


@pytest.fixture(autouse=True)
def short(settings: Any) -> None:
    settings.LEASE_SECONDS, settings.HEARTBEAT_SECONDS, settings.CALL_SECONDS_MAX = 3.0, 0.5, 1.0
    settings.BACKOFF_SECONDS = 0.0


def slow(call: Call) -> outcomes.Outcome:
    """As slow as its input says, and then takes its rooms."""
    sql.fetch("SELECT pg_sleep(%s)", [call.arguments["seconds"]])
    return hot_rooms.take(call)


def submit(definition: saga.Saga, room: str, seconds: int) -> Any:
    return factories.submit(definition, {"rooms": [room], "seconds": seconds})


def test_it_fails_in_the_end_and_its_neighbours_do_not_wait() -> None:
    with hot_rooms.hotel(), hot_rooms.taking(slow, attempts=2) as definition:
        endless = submit(definition, "red", 60)
        others = [submit(definition, "blue", 0) for _ in range(NEIGHBOURS)]
        with psql.connected() as watch:
            driving = psql.Thread(lambda: engine.drive("forward"))
            begun = time.monotonic()
            psql.await_true(watch, "SELECT count(*) = %s FROM ledger_receipt", [NEIGHBOURS])
            waited = time.monotonic() - begun
            assert drives.state(endless) == "running"
            driving.result(40.0)
        assert waited < LEASE_SECONDS
        assert {drives.state(job) for job in others} == {"confirmed"}
        assert drives.receipts(endless) == [("take", "forward", "not_sent")] * 2
        assert drives.state(endless) == "refused"
        row = models.Job.objects.get(id=endless)
        assert (row.fence, row.leases_lost) == (1, 0)
        assert hot_rooms.taken() == {"blue": NEIGHBOURS}


def test_one_that_is_slow_twice_and_then_is_not_is_done(settings: Any) -> None:
    times: list[int] = [60, 60]

    def recovering(call: Call) -> outcomes.Outcome:
        sql.fetch("SELECT pg_sleep(%s)", [times.pop() if times else 0])
        return hot_rooms.take(call)

    with hot_rooms.hotel(), hot_rooms.taking(recovering) as definition:
        job = submit(definition, "red", 0)
        engine.drive("forward")
        assert (drives.state(job), drives.receipts(job)) == (
            "confirmed",
            [("take", "forward", "confirmed")],
        )
        assert hot_rooms.taken() == {"red": 1}

"""LOCAL steps: effect, attempt and receipt commit together, rows are locked first and in one order, and a lock that does
not come never fails a step.
"""

from collections.abc import Iterator
from itertools import cycle, islice, permutations
from typing import Any

import pytest
import structlog

from ledger import calls, crashpoints, engine, leases, models, outcomes, saga, sql
from ledger.saga import Call
from tests import claims, drives, factories, hot_rooms, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role", "hotel")


@pytest.fixture
def hotel(worker_role: None) -> Iterator[None]:
    with hot_rooms.hotel():
        yield


def bad(call: Call) -> outcomes.Outcome:
    """Takes its rooms, then ends as the input says."""
    hot_rooms.take(call)
    ending: str = call.arguments["ending"]
    match ending:
        case "refused":
            raise outcomes.Refused("closed")
        case "raises":
            raise ZeroDivisionError
        case "returned":
            return outcomes.NotSent("returned")
        case "nothing":
            return None  # type: ignore[return-value]  # the mistake under test
        case "sql":
            sql.fetch("SELECT 1 / 0")
        case _:
            pass
    return outcomes.Confirmed()


def test_effect_attempt_and_receipt_are_one_write() -> None:
    with hot_rooms.taking() as definition:
        job = factories.submit(definition, {"rooms": ["red", "blue"]})
        engine.drive("forward")
    assert (drives.state(job), hot_rooms.taken()) == ("confirmed", {"red": 1, "blue": 1})
    attempt, receipt = models.Attempt.objects.get(), models.Receipt.objects.get()
    assert (attempt.seq, attempt.fence) == (receipt.seq, receipt.fence) == (1, 1)


@pytest.mark.parametrize("point", ["local.before", "local.after_handlers"])
def test_a_crash_before_the_commit_leaves_neither(point: str) -> None:
    def crash(name: str) -> None:
        raise crashpoints.CrashPointError(name)

    with hot_rooms.taking() as definition:
        job = factories.submit(definition, {"rooms": ["red"]})
        with crashpoints.armed(point, crash), pytest.raises(crashpoints.CrashPointError):
            engine.drive("forward")
        assert (hot_rooms.taken(), drives.receipts(job), models.Attempt.objects.count()) == (
            {},
            [],
            0,
        )
        drives.expire_lease(job)
        leases.reclaim(10)
        drives.drive_all()
    assert (drives.state(job), hot_rooms.taken()) == ("confirmed", {"red": 1})


@pytest.mark.parametrize(
    ("ending", "receipt"),
    [
        ("raises", "not_sent"),
        ("sql", "not_sent"),
        ("returned", "not_sent"),
        ("nothing", "not_sent"),
        ("refused", "refused"),
    ],
)
def test_a_handler_that_does_not_confirm_is_rolled_back_and_the_others_of_its_batch_commit(
    ending: str, receipt: str
) -> None:
    with hot_rooms.taking(bad, attempts=1) as definition:
        tenant = factories.TenantFactory.create()
        endings = ["", ending, ""]
        jobs = [
            factories.submit(definition, {"rooms": ["red"], "ending": e}, tenant) for e in endings
        ]
        engine.drive("forward")
        drives.drive_all()
    assert [drives.receipts(job) for job in jobs] == [
        [("take", "forward", "confirmed")],
        [("take", "forward", receipt)],
        [("take", "forward", "confirmed")],
    ]
    assert hot_rooms.taken() == {"red": 2}
    assert [drives.state(job) for job in jobs] == ["confirmed", "refused", "confirmed"]


def test_a_job_whose_rows_cannot_be_named_fails_alone() -> None:
    with hot_rooms.taking(attempts=1) as definition:
        bad, good = (factories.submit(definition, i) for i in ({}, {"rooms": ["red"]}))
        drives.drive_all()
    assert (drives.state(bad), drives.receipts(bad)) == (
        "refused",
        [("take", "forward", "not_sent")],
    )
    assert (drives.state(good), hot_rooms.taken()) == ("confirmed", {"red": 1})


def test_a_job_that_cannot_be_planned_on_parks_with_its_local_step_done() -> None:
    def arguments(request: Any, _done: Any) -> dict[str, Any]:
        return {"holder": request["holder"]}

    world = sagas.World()
    local: dict[str, Any] = {"effect": saga.LOCAL, "undo_effect": saga.LOCAL}
    steps = [
        sagas.step(world, "room", **local),
        sagas.step(world, "badge", arguments=arguments, **local),
    ]
    with sagas.registered(saga.Saga("test.badge", version=1, steps=steps)) as definition:
        bad, good = (factories.submit(definition, i) for i in ({}, {"holder": "h"}))
        engine.drive("forward")
    parked = models.Job.objects.get(id=bad)
    assert (parked.state, parked.parked_reason) == ("parked", "conflict")
    assert "KeyError" in parked.parked_detail
    assert drives.receipts(bad) == [("room", "forward", "confirmed")]
    assert drives.state(good) == "confirmed"


def test_a_lock_that_does_not_come_halves_the_batch_and_fails_no_step(settings: Any) -> None:
    settings.LEASE_SECONDS, settings.HEARTBEAT_SECONDS = 2.0, 0.2
    with (
        hot_rooms.taking() as definition,
        psql.connected(autocommit=False) as other,
        psql.connected() as watch,
        structlog.testing.capture_logs() as logs,
    ):
        jobs = [factories.submit(definition, {"rooms": [key]}) for key in hot_rooms.ROOMS]
        other.execute("SELECT 1 FROM hot_room WHERE key = 'blue' FOR UPDATE")
        driving = psql.Thread(lambda: engine.drive("forward"))
        psql.await_true(watch, "SELECT count(*) = 4 FROM ledger_receipt")
        blocked = jobs[hot_rooms.ROOMS.index("blue")]
        assert drives.receipts(blocked) == []
        other.commit()
        assert driving.result() == 5
    assert hot_rooms.taken() == dict.fromkeys(hot_rooms.ROOMS, 1)
    assert {tuple(drives.receipts(job)) for job in jobs} == {(("take", "forward", "confirmed"),)}
    sizes = [e["count"] for e in logs if e["event"] == "local.repeated"]
    assert sizes[0] == 5
    assert sizes[1:]
    assert all(size <= 3 for size in sizes[1:])
    assert {e["sqlstate"] for e in logs if e["event"] == "local.repeated"} == {"55P03"}


def test_a_lock_that_comes_in_time_is_waited_for() -> None:
    with (
        hot_rooms.taking() as definition,
        psql.connected(autocommit=False) as other,
        psql.connected() as watch,
        structlog.testing.capture_logs() as logs,
    ):
        job = factories.submit(definition, {"rooms": ["blue"]})
        other.execute("SELECT 1 FROM hot_room WHERE key = 'blue' FOR UPDATE")
        driving = psql.Thread(lambda: engine.drive("forward"))
        psql.await_lock_wait(watch)
        other.commit()
        driving.result()
    assert drives.state(job) == "confirmed"
    assert [e for e in logs if e["event"] == "local.repeated"] == []


def test_rows_are_locked_in_one_order_whatever_order_the_jobs_name_them_in() -> None:
    """While a batch waits for the first room in the canonical order, it holds none of the others."""
    first, *others = sorted(hot_rooms.ROOMS)
    with (
        hot_rooms.taking() as definition,
        psql.connected(autocommit=False) as other,
        psql.connected() as watch,
    ):
        for stay in (sorted(hot_rooms.ROOMS, reverse=True), hot_rooms.ROOMS):
            factories.submit(definition, {"rooms": list(stay)})
        other.execute("SELECT 1 FROM hot_room WHERE key = %s FOR UPDATE", [first])
        driving = psql.Thread(lambda: engine.drive("forward"))
        psql.await_lock_wait(watch)
        for room in others:
            other.execute("SELECT 1 FROM hot_room WHERE key = %s FOR UPDATE NOWAIT", [room])
        other.commit()
        driving.result()
    assert hot_rooms.taken() == dict.fromkeys(hot_rooms.ROOMS, 2)


def test_two_drivers_on_five_hot_rooms_never_meet_in_a_deadlock(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.SLOTS = 4
    monkeypatch.setattr(calls, "pool", calls.Pool)  # each run has its own pool, as each process has
    stays = list(islice(cycle(permutations(hot_rooms.ROOMS, 3)), 160))
    with hot_rooms.taking() as definition, structlog.testing.capture_logs() as logs:
        jobs = [factories.submit(definition, {"rooms": list(stay)}) for stay in stays]
        claimed = psql.together(2, lambda _n: engine.drive("forward"))
    assert sum(claimed) == len(jobs)
    assert min(claimed) > 0
    assert sum(hot_rooms.taken().values()) == 3 * len(jobs)
    assert set(models.Job.objects.values_list("state", flat=True)) == {"confirmed"}
    assert [e for e in logs if e["event"] == "local.repeated"] == []


def test_a_batch_leaves_out_the_job_that_was_lost_and_runs_the_rest() -> None:
    with hot_rooms.taking() as definition:
        lost, kept = (factories.submit(definition, {"rooms": ["red"]}) for _ in range(2))
        with crashpoints.armed("local.before", lambda _p: claims.lose(lost)):
            engine.drive("forward")
    assert (drives.state(lost), drives.receipts(lost)) == ("running", [])
    assert (drives.state(kept), hot_rooms.taken()) == ("confirmed", {"red": 1})


def test_a_batch_is_bounded(settings: Any) -> None:
    batches: list[str] = []
    with hot_rooms.taking() as definition:
        for _ in range(40):
            factories.submit(definition, {"rooms": ["red"]})
        with crashpoints.armed("local.before", batches.append):
            engine.drive("forward")
    assert len(batches) == 2
    assert hot_rooms.taken() == {"red": 40}

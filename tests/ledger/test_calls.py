"""The threads that call: nothing of the database, no call that could outlast its lease, unknown at the deadline."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from ledger import calls, crashpoints, engine, models, outcomes, saga, telemetry
from ledger.calls import Placed
from ledger.saga import Call
from tests import drives, factories, histories, sagas

WAIT = 10.0


@dataclass
class Lease:
    lease_deadline: float = field(default_factory=lambda: time.monotonic() + 60)


@pytest.fixture(autouse=True)
def own_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_pool", None)


def place(
    handler: saga.Handler | saga.Probe, seconds: float = 5.0, lease: Lease | None = None
) -> Placed:
    call = Call("job:room:forward", uuid4(), "tenant", 1, {}, seconds)
    return Placed(
        lease or Lease(), call.job_id, 1, "room", histories.FORWARD, "call", handler, call
    )


def outcome_of(placed: Placed) -> Any:
    pool = calls.Pool(4)
    pool.place(placed)
    (back,) = list(pool.returned(WAIT))
    assert back is placed
    assert pool.free() == 4
    return back.outcome


def counting(_call: Call) -> outcomes.Confirmed:
    return outcomes.Confirmed(ref=str(models.Job.objects.count()))


def atomic(_call: Call) -> outcomes.Confirmed:
    with transaction.atomic():
        return outcomes.Confirmed()


def cursor(_call: Call) -> outcomes.Confirmed:
    connection.cursor().execute("DELETE FROM ledger_tenant")
    return outcomes.Confirmed()


@pytest.mark.parametrize("handler", [counting, atomic, cursor])
def test_a_thread_that_touches_the_database_gets_an_error_and_its_call_is_unknown(
    handler: saga.Handler,
) -> None:
    outcome = outcome_of(place(handler))
    assert isinstance(outcome, outcomes.Unknown)
    assert outcome.reason == "DatabaseForbidden"


@pytest.mark.usefixtures("worker_role")
def test_the_same_handler_may_in_a_local_step() -> None:
    for effect, state in (
        (saga.LOCAL, "confirmed"),
        (histories.effect(key_lifetime=None), "parked"),
    ):
        step = saga.Step("count", do=counting, undo=saga.NotUndoable("a test"), effect=effect)
        with sagas.registered(saga.Saga("test.count", version=1, steps=[step])) as definition:
            job = factories.submit(definition)
            engine.drive("forward")
        assert drives.state(job) == state


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (outcomes.Refused("no"), outcomes.Refused),
        (outcomes.NotSent("dns"), outcomes.NotSent),
        (outcomes.Unknown("500"), outcomes.Unknown),
        (ValueError("x"), outcomes.Unknown),
        (TimeoutError(), outcomes.Unknown),
        (RecursionError(), outcomes.Unknown),
    ],
)
def test_what_a_handler_raises_is_its_outcome_or_unknown(ending: Exception, expected: type) -> None:
    assert type(outcome_of(place(sagas.raising(ending)))) is expected


@pytest.mark.parametrize("returned", [None, "ok", 1, outcomes.Confirmed, {"status": "succeeded"}])
def test_what_is_no_outcome_is_unknown(returned: Any) -> None:
    outcome = outcome_of(place(lambda _call: returned))
    assert isinstance(outcome, outcomes.Unknown)


@pytest.mark.parametrize(("left", "called"), [(5.4, 0), (-1.0, 0), (5.7, 1)])
def test_no_call_starts_that_could_outlast_its_lease(left: float, called: int) -> None:
    made: list[Call] = []

    def handler(call: Call) -> outcomes.Confirmed:
        made.append(call)
        return outcomes.Confirmed()

    outcome = outcome_of(place(handler, 5.0, Lease(time.monotonic() + left)))
    assert len(made) == called
    assert called or (isinstance(outcome, outcomes.NotSent) and outcome.released)


def test_a_withdrawn_call_comes_back_unsent() -> None:
    placed = place(sagas.confirm)
    placed.withdrawn = True
    outcome = outcome_of(placed)
    assert isinstance(outcome, outcomes.NotSent)
    assert (outcome.released, placed.started_at) == (True, None)


@pytest.mark.usefixtures("worker_role")
def test_what_was_released_for_a_short_lease_uses_no_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grace, turns = calls.ABANDON_GRACE_SECONDS, iter([1e6, 1e6])

    def short_at_first(_point: str) -> None:
        monkeypatch.setattr(calls, "ABANDON_GRACE_SECONDS", next(turns, grace))

    world = sagas.World()
    with sagas.trip(world, attempts=1) as trip, crashpoints.armed("settle.after", short_at_first):
        job = factories.submit(trip)
        engine.drive("forward")
    outcomes_ = [outcome for step, _, outcome in drives.receipts(job) if step == "room"]
    assert set(outcomes_) == {"not_sent", "confirmed"}
    assert (outcomes_[-1], world.times("room:forward"), drives.state(job)) == (
        "confirmed",
        1,
        "confirmed",
    )
    released = models.Receipt.objects.filter(job_id=job, outcome="not_sent").first()
    assert released is not None
    assert (released.evidence["reason"], released.evidence["released"]) == ("lease_too_short", True)


@dataclass
class Hanging:
    """A handler that hangs until it is let go."""

    go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, call: Call) -> outcomes.Confirmed:
        assert self.go.wait(WAIT)
        return sagas.confirm(call)

    def let_go(self, call: Call) -> outcomes.Confirmed:
        """Another operation's handler: when it is called, the hanging one may go on."""
        self.go.set()
        return sagas.confirm(call)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Hanging, saga.Saga]]:
    """One step without a key whose call hangs past its deadline."""
    monkeypatch.setattr(calls, "ABANDON_GRACE_SECONDS", 0.05)
    handler = Hanging()
    effect = histories.effect(key_lifetime=None, call_seconds=0.1)
    step = saga.Step("room", do=handler, undo=saga.NotUndoable("a test"), effect=effect)
    with sagas.registered(saga.Saga("test.hang", version=1, steps=[step])) as definition:
        yield handler, definition
    handler.go.set()


def await_answer(pool: calls.Pool) -> None:
    pause = threading.Event()
    for _ in range(1_000):
        if pool._done.qsize():
            return
        pause.wait(0.01)
    raise AssertionError("the late answer never came")


@pytest.mark.usefixtures("worker_role")
def test_a_call_past_its_deadline_is_unknown_now_and_its_late_answer_a_sighting(
    hanging: tuple[Hanging, saga.Saga], settings: Any
) -> None:
    handler, definition = hanging
    job = factories.submit(definition)
    engine.drive("forward")
    assert drives.receipts(job) == [("room", "forward", "unknown")]
    assert (drives.state(job), _sightings(job)) == ("parked", [])
    handler.go.set()
    await_answer(calls.pool(settings.SLOTS))
    with sagas.trip(sagas.World()) as trip:
        other = factories.submit(trip)
        engine.drive("forward")
    assert drives.state(other) == "confirmed"
    assert _sightings(job) == [("room", 1, "late", "confirmed")]
    assert (drives.state(job), drives.receipts(job)) == ("parked", [("room", "forward", "unknown")])


@pytest.mark.usefixtures("worker_role")
def test_a_hanging_call_holds_up_only_its_own_job(
    hanging: tuple[Hanging, saga.Saga], settings: Any
) -> None:
    settings.SLOTS = 2
    handler, slow = hanging
    world = sagas.World()
    world.says("ticket:forward", handler.let_go)
    with sagas.trip(world) as trip:
        hung, quick = factories.submit(slow), factories.submit(trip)
        engine.drive("forward")
    assert drives.state(quick) == "confirmed"
    assert drives.state(hung) == "confirmed"


@pytest.mark.usefixtures("worker_role")
def test_an_answer_at_the_very_moment_of_giving_up_does_not_leave_its_job_hanging(
    hanging: tuple[Hanging, saga.Saga], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    handler, definition = hanging
    emit = telemetry.emit

    def answer_now(event: str, **fields: Any) -> None:
        if event == "call.abandoned":
            handler.go.set()
            await_answer(calls.pool(settings.SLOTS))
        emit(event, **fields)

    monkeypatch.setattr(telemetry, "emit", answer_now)
    job = factories.submit(definition)
    engine.drive("forward")
    assert drives.state(job) in {"confirmed", "parked"}
    assert len(drives.receipts(job)) == 1


def _sightings(job: UUID) -> list[tuple[str, int, str, str]]:
    rows = models.Sighting.objects.filter(job_id=job)
    return [(s.step, s.n, s.kind, s.outcome) for s in rows]


@pytest.mark.usefixtures("worker_role")
def test_slots_bound_the_calls_at_once_and_are_all_used(settings: Any) -> None:
    settings.SLOTS = 3
    meeting, lock, now, most = threading.Barrier(3), threading.Lock(), 0, 0

    def handler(call: Call) -> outcomes.Confirmed:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        meeting.wait(WAIT)  # three at once, or nobody goes on
        with lock:
            now -= 1
        return sagas.confirm(call)

    step = saga.Step("room", do=handler, undo=saga.NotUndoable("a test"), effect=histories.effect())
    with sagas.registered(saga.Saga("test.slots", version=1, steps=[step])) as definition:
        jobs = [factories.submit(definition) for _ in range(9)]
        engine.drive("forward")
    assert {drives.state(job) for job in jobs} == {"confirmed"}
    assert most == 3


def test_abandoned_threads_bound_the_calls_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "ABANDON_GRACE_SECONDS", 0.0)
    pool, handler = calls.Pool(2), Hanging()
    for round_ in range(2):
        for _ in range(2):
            pool.place(place(handler, 0.05))
        gone: list[Placed] = []
        while len(gone) < 2:
            gone += pool.returned(0.05)
        assert pool.free() == 2 - 2 * round_
    handler.go.set()
    back: list[Placed] = []
    while len(back) < 4:
        back += pool.returned(WAIT)
    assert pool.free() == 2


def test_an_error_outside_the_handler_costs_neither_the_call_nor_the_thread() -> None:
    pool = calls.Pool(1)
    broken = place(lambda _call: outcomes.Confirmed())

    def fail(point: str) -> None:
        raise crashpoints.CrashPointError(point)

    with crashpoints.armed("call.before", fail):
        pool.place(broken)
        (back,) = pool.returned(5.0)
    assert isinstance(back.outcome, outcomes.Unknown)
    pool.place(place(lambda _call: outcomes.Confirmed("next")))
    (back,) = pool.returned(5.0)
    assert back.outcome == outcomes.Confirmed("next")


def test_where_no_thread_is_left_the_call_comes_back_unsent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    called: list[Call] = []
    pool = calls.Pool(4)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    pool.place(place(called.append))  # type: ignore[arg-type]
    (back,) = pool.returned(WAIT)
    assert isinstance(back.outcome, outcomes.NotSent)
    assert (back.outcome.reason, called, pool.free()) == ("no_thread", [], 4)


def test_where_one_thread_is_left_it_serves_all(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    pool = calls.Pool(4)

    def wait(call: Call) -> outcomes.Confirmed:
        assert gate.wait(WAIT)
        return sagas.confirm(call)

    pool.place(place(wait))
    with pytest.MonkeyPatch.context() as patch:

        def refuse(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", refuse)
        pool.place(place(wait))
    gate.set()
    back = list(pool.returned(WAIT))
    while len(back) < 2:
        back += pool.returned(WAIT)
    assert [type(placed.outcome) for placed in back] == [outcomes.Confirmed] * 2

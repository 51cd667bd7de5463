"""A row that the database refuses parks its own job and loses nobody else's: 63 settle, one is unwritable."""

from collections.abc import Callable, Mapping
from typing import Any

import psycopg
import pytest
import structlog

from ledger import engine, models, outcomes, saga
from ledger.saga import Call
from tests import claims, drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")

GOOD = 63
TOO_LONG = "n" * 120


def one_step(world: sagas.World, name: str, **options: Any) -> saga.Saga:
    return saga.Saga(f"test.{name[:20]}", version=1, steps=[sagas.step(world, name, **options)])


def nul(_input: Any, _done: Mapping[str, saga.Done]) -> Mapping[str, Any]:
    return {"note": "a\x00b"}


def parked(job: Any) -> tuple[str, str, int, bool, int]:
    row = models.Job.objects.get(id=job)
    return row.state, row.parked_reason, row.strikes, row.suspect, row.leases_lost


UNWRITABLE = ("parked", "unwritable", 0, False, 0)


@pytest.mark.parametrize(
    ("name", "options", "sqlstate"),
    [(TOO_LONG, {}, "22001"), ("room", {"arguments": nul}, "22P05")],
    ids=["a step's name longer than its column", "a NUL in the arguments"],
)
def test_one_bad_row_among_64_parks_alone(
    name: str, options: dict[str, Any], sqlstate: str
) -> None:
    world, bad_world = sagas.World(), sagas.World()
    with (
        sagas.registered(one_step(world, "good")) as good,
        sagas.registered(one_step(bad_world, name, **options)) as bad,
        structlog.testing.capture_logs() as logs,
    ):
        jobs = [factories.submit(good) for _ in range(GOOD)]
        jobs.insert(31, factories.submit(bad))
        assert engine.drive("forward") == 64
    refused = [entry for entry in logs if entry["event"] == "job.unwritable"]
    assert [(e["sqlstate"], e["count"]) for e in refused] == [(sqlstate, 64), (sqlstate, 1)]
    assert parked(jobs.pop(31)) == UNWRITABLE
    assert {drives.state(job) for job in jobs} == {"confirmed"}
    assert (world.times("good:forward"), bad_world.called) == (GOOD, [])


def test_without_a_bad_row_all_64_settle_in_one_commit() -> None:
    world = sagas.World()
    with (
        sagas.registered(one_step(world, "good")) as good,
        structlog.testing.capture_logs() as logs,
    ):
        jobs = [factories.submit(good) for _ in range(GOOD + 1)]
        engine.drive("forward")
    assert {drives.state(job) for job in jobs} == {"confirmed"}
    assert [entry for entry in logs if entry["event"] == "job.unwritable"] == []


def settle_behind_its_back(call: Call) -> outcomes.Confirmed:
    """Whoever holds the fence could have written this; the owner's own receipt is then a second final one."""
    with psql.connected("worker") as session:
        session.execute(
            "INSERT INTO ledger_receipt (job_id, seq, fence, step, direction, n, outcome, evidence)"
            " SELECT id, seq, fence, 'good', 'forward', 1, 'refused', '{}' FROM ledger_job WHERE id = %s",
            [call.job_id],
        )
    return outcomes.Confirmed(ref="cap_77", data={"amount_minor": 12_000})


def test_a_receipt_that_cannot_be_written_leaves_its_length_and_hash() -> None:
    world, other = sagas.World(), sagas.World()
    world.says("good:forward", settle_behind_its_back)
    with (
        sagas.registered(one_step(world, "good")) as bad,
        sagas.registered(one_step(other, "fine")) as fine,
    ):
        job, rest = factories.submit(bad), [factories.submit(fine) for _ in range(5)]
        engine.drive("forward")
    assert parked(job) == UNWRITABLE
    assert drives.receipts(job)[1:] == [("good", "forward", "unknown")]
    kept = models.Receipt.objects.filter(job_id=job).order_by("id").last()
    assert kept is not None
    assert kept.evidence["unwritable"] is True
    assert kept.evidence["length"] > 0
    assert len(kept.evidence["sha256"]) == 64
    assert models.Job.objects.get(id=job).parked_detail.endswith("23505 ledger_receipt_final_once")
    assert {drives.state(j) for j in rest} == {"confirmed"}


def test_an_undo_that_the_money_guard_refuses_parks_and_sends_nothing() -> None:
    """Arguments that ask for more than was captured are a mistake in code; the database has the last word."""

    def double(request: Any, _done: Mapping[str, saga.Done]) -> Mapping[str, Any]:
        return {"amount_minor": request["amount_minor"] * 2, "currency": "EUR"}

    assert _undone(double) == ("parked", "unwritable", [])


def test_an_undo_of_the_same_amount_is_sent() -> None:
    def same(request: Any, _done: Mapping[str, saga.Done]) -> Mapping[str, Any]:
        return {"amount_minor": request["amount_minor"], "currency": "EUR"}

    assert _undone(same) == ("compensated", "", ["payment:backward"])


def _undone(undo_arguments: Callable[..., Mapping[str, Any]]) -> tuple[str, str, list[str]]:
    world = sagas.World()
    world.says("ticket:forward", sagas.raising(outcomes.Refused("no_seat")))
    steps = [
        sagas.step(world, "payment", undo_arguments=undo_arguments),
        sagas.step(world, "ticket", pivot=True),
    ]
    with sagas.registered(saga.Saga("test.money", version=1, steps=steps)) as definition:
        job = factories.submit(definition, {"amount_minor": 12_000, "currency": "EUR"})
        drives.drive_all()
    row = models.Job.objects.get(id=job)
    return row.state, row.parked_reason, world.called[2:]


def test_a_local_row_that_cannot_be_written_parks_alone_and_its_effect_is_undone() -> None:
    world, bad_world = sagas.World(), sagas.World()
    local = {"effect": saga.LOCAL, "undo_effect": saga.LOCAL}
    with (
        sagas.registered(one_step(world, "good", **local)) as good,
        sagas.registered(one_step(bad_world, "bad", arguments=nul, **local)) as bad,
    ):
        jobs = [factories.submit(good) for _ in range(8)]
        broken = factories.submit(bad)
        engine.drive("forward")
    assert parked(broken) == UNWRITABLE
    assert claims.rows(broken) == dict.fromkeys(claims.rows(broken), 0)
    assert {drives.state(job) for job in jobs} == {"confirmed"}


def test_what_a_provider_answered_is_always_writable() -> None:
    """The answers that look unwritable are made storable before the database sees them."""
    world = sagas.World()
    answer = {
        "nul\x00": "\x00",
        "surrogate": "\ud800",
        "huge": 2**70,
        "nan": float("nan"),
        "raw": b"\xff",
    }
    world.says("good:forward", lambda _call: outcomes.Confirmed(ref="r\x00\ud800", data=answer))
    with sagas.registered(one_step(world, "good")) as definition:
        job = factories.submit(definition)
        engine.drive("forward")
    assert drives.state(job) == "confirmed"
    assert models.Receipt.objects.get(job_id=job).evidence["ref"] == "r\\u0000\\ud800"


def test_arguments_that_cannot_be_encoded_park_their_job_alone() -> None:
    def surrogate(_input: Any, _done: Mapping[str, saga.Done]) -> Mapping[str, Any]:
        return {"note": "\ud800"}

    world, other = sagas.World(), sagas.World()
    with (
        sagas.registered(one_step(world, "bad", arguments=surrogate)) as bad,
        sagas.registered(one_step(other, "good")) as good,
    ):
        job, fine = factories.submit(bad), factories.submit(good)
        engine.drive("forward")
    assert (drives.state(job), world.called, drives.state(fine)) == ("parked", [], "confirmed")


def test_a_row_error_of_a_local_handler_fails_its_step_and_nothing_else() -> None:
    """A constraint that a handler meets is its own answer: rolled back and not sent, no park of the row."""

    def breaks(_call: Call) -> outcomes.Confirmed:
        raise psycopg.errors.UniqueViolation

    world = sagas.World()
    world.says("room:forward", breaks)
    step = sagas.step(world, "room", effect=saga.LOCAL, undo_effect=saga.LOCAL)
    with sagas.registered(saga.Saga("test.local", version=1, steps=[step])) as definition:
        job = factories.submit(definition)
        drives.drive_all()
    assert drives.receipts(job) == [
        ("room", "forward", "not_sent"),
        ("room", "forward", "confirmed"),
    ]
    assert drives.state(job) == "confirmed"

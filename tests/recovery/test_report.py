"""`manage.py report` over jobs that the real engine drove: every job in one class, the classes add up, the money is right.

The second witness is the world that the handlers call: it knows what it was asked to take and to give back.
"""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from ledger import acts, engine, journal, outcomes, resolutions, saga, selectors, sql
from ledger.operations import Entry
from ledger.standing import Standing
from recovery import sweeps
from tests import claims, drives, factories, psql, sagas
from tests.sagas import World

PRICE: dict[str, Any] = {"amount_minor": 12_000, "currency": "EUR"}
NO = sagas.raising(outcomes.Refused("no"))
LOST = sagas.raising(outcomes.Unknown("timeout"))
CLASSES = [str(standing) for standing in Standing]


@pytest.fixture(autouse=True)
def no_backoff(settings: Settings, database: None) -> None:
    settings.BACKOFF_SECONDS = 0.0


@contextmanager
def paid_trip(world: World) -> Iterator[saga.Saga]:
    """room, payment, the pivot ticket, mail; only the payment is about money."""
    free: dict[str, Any] = {"arguments": nothing, "undo_arguments": nothing}
    steps = [
        sagas.step(world, "room", **free),
        sagas.step(world, "payment"),
        sagas.step(world, "ticket", **free, pivot=True),
        sagas.step(world, "mail", **free),
    ]
    name = f"test.paid.{next(sagas._numbers)}"
    with sagas.registered(saga.Saga(name, version=1, steps=steps)) as definition:
        yield definition


def nothing(_request: Any, _done: Any) -> dict[str, Any]:
    return {}


def report(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text("--json", *arguments))
    return found


def text(*arguments: str) -> str:
    out = io.StringIO()
    call_command("report", *arguments, stdout=out)
    return out.getvalue()


def drive(world: World, trip: saga.Saga, **script: list[sagas.Answer]) -> UUID:
    """One job in a world that answers so: `ticket_forward=[NO]`."""
    for what, answers in script.items():
        world.says(what.replace("_", ":"), *answers)
    id_ = factories.submit(trip, PRICE)
    drives.drive_all()
    return id_


def close(id_: UUID) -> None:
    for name in ("ann", "bob"):
        user = get_user_model().objects.create_superuser(name)
        asked = acts.Asked(act="close", by=name, reason="settled with the bank by phone")
        resolutions.act(id_, asked, by=user)


def lose_a_lease(trip: saga.Saga) -> UUID:
    claimed = claims.running(trip, PRICE)
    drives.expire_lease(claimed.id)
    assert sweeps.reclaim().count == 1
    drives.drive_all()
    return claimed.id


def money(captured: int = 0, refunded: int = 0, at_risk: int = 0) -> dict[str, dict[str, int]]:
    held = captured - refunded
    sums = {"captured": captured, "refunded": refunded, "held": held, "at_risk": at_risk}
    return {"EUR": sums}


def test_an_empty_ledger_has_all_eight_classes_in_their_order() -> None:
    found = report()
    assert found["total"] == 0
    assert list(found["classes"]) == CLASSES
    assert len(CLASSES) == 8
    for line in found["classes"].values():
        assert (line["jobs"], line["money"], line["oldest_seconds"]) == (0, {}, None)


def every_class(world: World, trip: saga.Saga) -> None:
    """Twelve jobs, at least one of each class."""
    lost = [LOST] * 5
    close(drive(world, trip, payment_forward=lost))
    drive(world, trip, payment_forward=lost)
    drive(world, trip, ticket_forward=[NO], payment_backward=[NO])
    drive(world, trip, ticket_forward=[NO], payment_backward=[LOST] * 12)
    drive(world, trip, mail_forward=[NO])
    drive(world, trip)
    lose_a_lease(trip)
    drive(world, trip, ticket_forward=[NO])
    drive(world, trip, payment_forward=[LOST], ticket_forward=[NO])
    drive(world, trip, room_forward=[NO])
    drive(world, trip, payment_forward=[NO])
    factories.submit(trip, PRICE)


def test_every_job_is_in_one_class_with_its_money(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "REPORT_BATCH", 5)  # several batches, the last one not full
    world = World()
    with paid_trip(world) as trip:
        every_class(world, trip)
        found = report()
    classes = found["classes"]
    assert {name: line["jobs"] for name, line in classes.items()} == {
        "settled_by_hand": 1,
        "unknown_outcome": 2,
        "compensation_pending": 1,
        "parked_forward": 1,
        "confirmed": 2,
        "completed_recovery": 3,
        "confirmed_failure": 1,
        "in_progress": 1,
    }
    assert found["total"] == sql.fetch("SELECT count(*) FROM ledger_job")[0][0] == 12
    assert {name: line["money"] for name, line in classes.items()} == {
        "settled_by_hand": money(at_risk=12_000),
        "unknown_outcome": money(captured=12_000, at_risk=24_000),
        "compensation_pending": money(captured=12_000),
        "parked_forward": money(captured=12_000),
        "confirmed": money(captured=24_000),
        "completed_recovery": money(captured=24_000, refunded=24_000),
        "confirmed_failure": {},
        "in_progress": {},
    }
    assert classes["confirmed"]["recovered_forward"] == 1
    assert classes["compensation_pending"]["parked"] == {"compensation_failed": 1}
    assert classes["parked_forward"]["parked"] == {"refused_after_pivot": 1}


def test_the_text_shows_each_class_with_its_money_and_receipts() -> None:
    world = World()
    with paid_trip(world) as trip:
        drive(world, trip)
        drive(world, trip, ticket_forward=[NO], payment_backward=[NO])
        lines = [line.split() for line in text().splitlines()]
    assert ["confirmed", "1"] in [line[:2] for line in lines]
    [row] = [line for line in lines if line[:2] == ["compensation", "pending"]]
    assert row[2] == "1"
    assert row[-6:] == ["EUR", "12000", "0", "12000", "0", "0"]
    assert ["receipts:", "3", "confirmed,", "2", "refused"] in lines
    assert ["parked:", "1", "compensation_failed"] in lines
    assert lines[-1] == ["2", "jobs;", "amounts", "in", "minor", "units"]


def test_fees_are_added_up_per_currency() -> None:
    world = World()
    fee = outcomes.Money(30, "EUR")
    with paid_trip(world) as trip:
        drive(world, trip, payment_forward=[lambda call: outcomes.Confirmed("ref", {}, fee)])
        drive(world, trip, payment_forward=[lambda call: outcomes.Confirmed("ref", {}, fee)])
        assert report()["classes"]["confirmed"]["cost"] == {"EUR": 60}


def test_a_call_under_way_is_in_progress_and_without_its_lease_unknown() -> None:
    """Only time has passed: the same journal, and nobody left who could hear the answer."""
    with paid_trip(World()) as trip:
        claimed = claims.running(trip, PRICE)
        claims.settle(claims.write(claimed, attempts=[claims.attempt("payment", **PRICE)]))
        line = report()["classes"]["in_progress"]
        assert (line["jobs"], line["money"]) == (1, money(at_risk=12_000))
        drives.expire_lease(claimed.id)
        line = report()["classes"]["unknown_outcome"]
        assert (line["jobs"], line["money"]) == (1, money(at_risk=12_000))


def test_a_version_that_this_build_does_not_know_is_judged_by_its_journal() -> None:
    world = World()
    with paid_trip(world) as trip:
        drive(world, trip)
        drive(world, trip, ticket_forward=[NO])
        drive(world, trip, ticket_forward=[NO], payment_backward=[NO])
    found = report()
    counts = {name: line["jobs"] for name, line in found["classes"].items() if line["jobs"]}
    assert counts == {"confirmed": 1, "completed_recovery": 1, "compensation_pending": 1}


def test_a_tenant_and_a_time_narrow_it() -> None:
    one, other = factories.TenantFactory.create(), factories.TenantFactory.create()
    with sagas.trip(World()) as trip:
        ids = [factories.submit(trip, PRICE, tenant) for tenant in (one, one, other)]
    sql.fetch("SET session_replication_role = replica")
    sql.fetch("UPDATE ledger_job SET created_at = '2020-01-01T12:00Z' WHERE id = %s", [ids[0]])
    sql.fetch("SET session_replication_role = origin")
    assert report()["total"] == 3
    assert report("--tenant", one.name)["total"] == 2
    assert report("--tenant", one.name, "--since", "2020-01-01T12:00:01Z")["total"] == 1
    assert report("--since", "2020-01-01T13:00+01:00")["total"] == 3
    assert report("--since", "2020-01-02")["total"] == 2


@pytest.mark.parametrize("since", ["yesterday", "2020-13-01", "", "0001-01-01T00:00+14:00"])
def test_a_time_that_is_none_is_refused(since: str) -> None:
    with pytest.raises(CommandError, match="--since"):
        report("--since", since)


def test_a_tenant_that_nobody_is_is_refused() -> None:
    with pytest.raises(CommandError, match="no tenant"):
        report("--tenant", "nobody")


def test_it_reads_in_short_snapshots_and_ends_though_jobs_keep_coming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job is accepted between any two batches. A report that ran after the newest would never end."""
    monkeypatch.setattr(selectors, "REPORT_BATCH", 1)
    with sagas.trip(World()) as trip:
        for _ in range(3):
            factories.submit(trip)
        pages = []
        for page in selectors._pages({"since": None, "tenant": None, "limit": 1}):
            assert sql.fetch("SELECT pg_current_xact_id_if_assigned()") == [(None,)]
            pages.append(len(page))
            factories.submit(trip)
            assert len(pages) < 10
    assert pages == [1, 1, 1, 0]


def test_a_job_that_is_claimed_while_its_batch_is_read_does_not_look_like_one_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between reading a job's columns and its journal, somebody claims it and writes an attempt."""
    read = journal.read
    with sagas.trip(World()) as trip:
        factories.submit(trip)

        def start() -> None:
            [claimed] = claims.claim(trip)
            claims.settle(claims.write(claimed, attempts=[claims.attempt("room")]))

        def overtaken(job_ids: Sequence[UUID]) -> dict[UUID, list[Entry]]:
            psql.Thread(start).result()
            return read(job_ids)

        monkeypatch.setattr(journal, "read", overtaken)
        found = report()
    assert found["classes"]["in_progress"]["jobs"] == found["total"] == 1


@pytest.mark.usefixtures("worker_role")
def test_a_worker_and_so_any_role_that_reads_may_ask() -> None:
    with sagas.trip(World()) as trip:
        factories.submit(trip)
        engine.drive("forward")
        assert report()["classes"]["confirmed"]["jobs"] == 1

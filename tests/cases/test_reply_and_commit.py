"""C47, C48: between the provider's reply and the commit of its receipt anything may fail; the payment is not lost by it.

The intent was committed before the call, and the receipt is written by itself: what comes next finds either of them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from ledger import crashpoints, models
from tests import claims, drives, lost_replies, psql, staff
from tests.cases import trips
from tests.cases.trips import PAID, TICKETED, Stage, Trip

RECEIPT = "INSERT INTO ledger_receipt"
# A statement that the database really refuses, in place of the one that stores the receipt: SQLSTATE 23505.
REFUSED = "INSERT INTO ledger_laneclock (lane, clock) SELECT lane, 0 FROM ledger_laneclock"
LOCK = "SELECT 1 FROM ledger_job WHERE id = %s FOR UPDATE"


@contextmanager
def at_the_receipt(trip: Trip, act: Callable[[], str | None]) -> Iterator[list[bool]]:
    """`act` runs once, right before the receipt of the payment is sent to the database; it may name another statement."""
    done: list[bool] = []

    def wrapper(execute: Callable[..., Any], statement: str, params: Any, *rest: Any) -> Any:
        if RECEIPT in statement and not done and trip.effects():
            done.append(True)
            if (other := act()) is not None:
                return execute(other, None, *rest)
        return execute(statement, params, *rest)

    with connection.execute_wrapper(wrapper):
        yield done


def test_a_receipt_that_the_database_refuses_leaves_the_intent_and_is_looked_up(
    stage: Stage,
) -> None:
    trip = stage.book()
    with at_the_receipt(trip, lambda: REFUSED) as done:
        drives.drive_all()
    assert done == [True]
    assert trip.parked() == ("parked", "unwritable")
    assert (trip.outcomes(), trip.requests()) == (["unknown"], ["capture"])
    assert (trip.effects(), trips.classes()) == ([PAID], {"unknown_outcome": 1})
    assert models.Attempt.objects.filter(job_id=trip.job_id, step=trips.CAPTURE).count() == 1
    staff.does(trip.job_id, "ask", f"{trips.CAPTURE}:forward")
    drives.drive_all()
    assert trip.state() == "confirmed"
    assert trip.requests() == ["capture", "probe", "ticket"]
    trip.agree()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_that_dies_around_the_receipt_is_replaced_and_it_is_stored_once(
    stage: Stage, when: lost_replies.When
) -> None:
    trip = stage.book()
    is_second = 2  # the first one stores the room's receipt and the payment's intent
    with lost_replies.dying(RECEIPT, when, is_second) as ended:
        drives.drive_all()
    assert ended == [when]
    assert_undisturbed(trip)


def test_a_connection_that_dies_inside_the_statement_takes_back_all_of_it(stage: Stage) -> None:
    """Right before the commit: the statement is at work, and waits for a lock, when its session is ended."""
    trip = stage.book()
    with psql.connected(autocommit=False) as other, psql.connected() as watch:
        cut: list[psql.Thread[None]] = []

        def end_while_waiting(pid: int) -> None:
            psql.await_lock_wait(watch)
            psql.cut([pid])
            other.rollback()

        def lock() -> None:
            other.execute(LOCK, [trip.job_id])
            pid = psql.pid()
            cut.append(psql.Thread(lambda: end_while_waiting(pid)))

        with at_the_receipt(trip, lock) as done:
            drives.drive_all()
        cut[0].result()
    assert done == [True]
    assert_undisturbed(trip)


def assert_undisturbed(trip: Trip) -> None:
    """Ended as if nothing had been: no look-up was needed, and the lease was never lost."""
    assert (trip.state(), trip.row().fence) == ("confirmed", 1)
    assert trip.requests() == ["capture", "ticket"]
    assert trip.effects() == [PAID, TICKETED]
    rows = claims.rows(trip.job_id)
    assert (rows["attempt"], rows["receipt"], rows["sighting"]) == (4, 4, 0)
    trip.agree()


def test_a_process_that_dies_between_reply_and_commit_leaves_an_intent_to_look_up(
    stage: Stage,
) -> None:
    trip = stage.book()

    def die(point: str) -> None:
        if trip.effects():
            raise crashpoints.CrashPointError(point)

    armed = crashpoints.armed("settle.before", die)
    with armed, pytest.raises(crashpoints.CrashPointError):
        drives.drive_all()
    assert (trip.outcomes(), trip.effects()) == ([], [PAID])
    trip.lose_owner()
    drives.drive_all()
    assert trip.state() == "confirmed"
    assert trip.requests() == ["capture", "probe", "ticket"]
    trip.agree()

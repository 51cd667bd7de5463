"""Errors that the server itself raises in the middle of a trip: each is met for a while, and the trip ends as if not.

A trigger on a table of the journal, of the jobs or of the rooms raises an error of the class under test, and counts in a
sequence, which no rollback takes back. No step fails by it, and nothing is sent twice.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, override

import psycopg
import pytest
import structlog
from django.db import InternalError, OperationalError, connection

from ledger import clock, engine, models, sql
from tests import drives, psql
from tests.acceptance import live
from tests.cases.trips import Stage, Trip

Roles = Callable[[str], AbstractContextManager[None]]
TIMES = 2
RAISE = """
CREATE SEQUENCE trouble_times;
GRANT USAGE ON SEQUENCE trouble_times TO PUBLIC;
CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('trouble_times') <= {times} THEN RAISE EXCEPTION 'trouble' USING ERRCODE = '{code}'; END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER trouble AFTER INSERT OR UPDATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION trouble();
"""
RAISE_NO_MORE = "DROP FUNCTION IF EXISTS trouble() CASCADE; DROP SEQUENCE IF EXISTS trouble_times"


@contextmanager
def raising(code: str, table: str, times: int = TIMES) -> Iterator[None]:
    """So many statements that write to the table meet this error."""
    with psql.connected() as owner:
        owner.execute(RAISE_NO_MORE)
        owner.execute(RAISE.format(code=code, table=table, times=times))
        try:
            yield
        finally:
            owner.execute(RAISE_NO_MORE)


def met(session: psycopg.Connection) -> int:
    row = session.execute("SELECT last_value FROM trouble_times").fetchone()
    return int(row[0]) if row else 0


def assert_as_undisturbed(trip: Trip) -> None:
    assert (trip.state(), trip.row().leases_lost) == ("confirmed", 0)
    assert trip.requests() == ["capture", "ticket"]
    assert models.Attempt.objects.filter(job_id=trip.job_id).count() == 4
    assert {outcome for _, _, outcome in drives.receipts(trip.job_id)} == {"confirmed"}
    trip.agree()


@pytest.mark.parametrize("table", ["ledger_job", "ledger_receipt", "bookings_reservation"])
@pytest.mark.parametrize(
    "code", ["40001", "40P01", "55P03", "57014", "53100", "53200", "08006", "25006", "57P01"]
)
def test_what_passes_is_repeated_and_fails_no_step(
    stage: Stage, as_role: Roles, code: str, table: str
) -> None:
    trip = stage.book()
    with raising(code, table), as_role("worker"):
        drives.drive_all()
        drives.drive_all()  # a promotion that waited for its lock in vain is left to the next run
        with psql.connected() as owner:
            assert met(owner) > TIMES
    assert_as_undisturbed(trip)


def test_an_error_of_no_known_class_ends_the_run_and_the_next_owner_goes_on(
    stage: Stage, as_role: Roles
) -> None:
    """Nothing is tried on for ever: the run says what it met, and the lease leads to the next one."""
    trip = stage.book()
    with raising("XX000", "ledger_receipt", times=1), as_role("worker"):
        with pytest.raises(InternalError):
            engine.drive("forward")
        assert (trip.state(), trip.requests(), drives.receipts(trip.job_id)) == ("running", [], [])
        trip.lose_owner()
        drives.drive_all()
    assert trip.state() == "confirmed"
    trip.agree()


def test_a_deadlock_with_somebody_else_is_met_and_repeated(stage: Stage, as_role: Roles) -> None:
    """A person's session holds the room's nights and waits for the job, which the batch holds while it asks for the nights.
    The other one's deadlock timeout is long, so that it is the batch that the server ends.
    """
    trip = stage.book()
    with psql.connected(autocommit=False) as other, psql.connected() as watch:
        other.execute("SET deadlock_timeout = '30s'")
        other.execute("SELECT 1 FROM bookings_roomnight FOR UPDATE")
        waiting: list[psql.Thread[object]] = []

        def hook(execute: Any, statement: str, params: Any, many: bool, context: Any) -> Any:
            if "FOR UPDATE OF n" in statement and not waiting:
                job = "SELECT 1 FROM ledger_job WHERE id = %s FOR UPDATE"
                waiting.append(psql.Thread(lambda: other.execute(job, [trip.job_id])))
                psql.await_lock_wait(watch)
                try:
                    return execute(statement, params, many, context)
                except OperationalError as error:
                    ended.append(sql.state_of(error))
                    waiting[0].result()
                    other.rollback()
                    raise
            return execute(statement, params, many, context)

        ended: list[str] = []
        with as_role("worker"), connection.execute_wrapper(hook):
            drives.drive_all()
    assert ended == ["40P01"]
    assert_as_undisturbed(trip)


@pytest.mark.parametrize(
    "marker", ["pg_advisory_xact_lock", "CROSS JOIN LATERAL", "FOR UPDATE OF n"]
)
def test_a_session_that_is_ended_for_idling_in_a_transaction_is_replaced(
    stage: Stage, as_role: Roles, marker: str
) -> None:
    trip = stage.book()
    ended: list[int] = []

    def hook(execute: Any, statement: str, params: Any, many: bool, context: Any) -> Any:
        found = execute(statement, params, many, context)
        if marker in statement and connection.in_atomic_block and not ended:
            ended.append(psql.pid())
            execute("SET idle_in_transaction_session_timeout = '1ms'", None, many, context)
            with psql.connected() as watch:
                gone = "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = %s)"
                psql.await_true(watch, gone, ended)
        return found

    with as_role("worker"), connection.execute_wrapper(hook):
        drives.drive_all()
    assert len(ended) == 1
    assert_as_undisturbed(trip)


LOGIN = "trouble_login"
# By the SQLSTATE that the driver is told; who is not let in is told none.
STATES = {
    "25006": ("ALTER DATABASE {db} SET default_transaction_read_only = {state}", "on", "off"),
    "": (f"ALTER ROLE {LOGIN} CONNECTION LIMIT {{state}}", "0", "-1"),
}


class Patience(clock.Real):
    """The process's own clock, which remembers each pause."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    @override
    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        super().pause(seconds)


@pytest.fixture
def login(database: None) -> Iterator[dict[str, Any]]:
    """The settings of a connection of the worker's whose login is no superuser's: no limit binds those."""
    known = connection.settings_dict
    options = {
        **known["OPTIONS"],
        "options": f"{known['OPTIONS']['options']} -c role=amends_worker",
    }
    with psql.connected() as owner:
        owner.execute(f"CREATE ROLE {LOGIN} LOGIN PASSWORD 'trouble' IN ROLE amends_worker")
        try:
            yield {**known, "USER": LOGIN, "PASSWORD": "trouble", "OPTIONS": options}
        finally:
            owner.execute(f"DROP ROLE {LOGIN}")


@pytest.mark.parametrize(
    "marker", ["", "hashtext", "claim_token", "SET LOCAL statement_timeout", "ledger_receipt"]
)
@pytest.mark.parametrize("code", STATES)
def test_a_server_that_takes_no_work_is_asked_again_until_it_does(
    stage: Stage, login: dict[str, Any], code: str, marker: str
) -> None:
    """From that statement on it is read-only, or has no connection left, until that was met four times."""
    trip = stage.book()
    statement, on, off = STATES[code]
    begun: list[str] = []
    patience = Patience()

    def say(state: str) -> None:
        with psql.connected() as owner:
            owner.execute("SET default_transaction_read_only = off")
            owner.execute(statement.format(db=login["NAME"], state=state))

    def begin(execute: Any, query: str, params: Any, many: bool, context: Any) -> Any:
        if marker in query and not begun:
            begun.append(query)
            say(on)
            psql.cut([psql.pid()])
        return execute(query, params, many, context)

    def drive() -> None:
        connection.settings_dict = login  # this thread's alone
        with connection.execute_wrapper(begin), clock.replaced(patience):
            drives.drive_all()

    def met() -> int:
        return sum(entry.get("sqlstate") == code for entry in logs)

    with structlog.testing.capture_logs() as logs:
        driving = psql.Thread(drive)
        live.until(lambda: met() >= 4, 10.0)
        say(off)
        driving.result()
    assert len(patience.pauses) >= met(), "a server in trouble is not asked again at once"
    assert_as_undisturbed(trip)

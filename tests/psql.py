"""A second connection to the test database, as a person with psql has one: plain statements, none of our code between.

Every statement commits by itself. `refusal` says who refused it: SQLSTATE and the constraint's (or guard's) name.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, override

import psycopg
from django.conf import settings
from django.db import connection, connections

from ledger import tenancy

WAIT_SECONDS = 10.0


@contextmanager
def connected(
    role: str = "owner", *, autocommit: bool = True, sees: str = tenancy.EVERYONE
) -> Iterator[psycopg.Connection[Any]]:
    """A connection as the owner (a superuser in tests), or one that has dropped to `role`; `sees` binds only the API's."""
    known = connections.settings[
        "default"
    ]  # and not the thread's connection: a call thread has none
    name = settings.ROLES[role]
    options = f"-c TimeZone=UTC -c statement_timeout=20000 -c amends.sees={sees}"
    options += f" -c role={name}" if name else ""
    with psycopg.connect(
        dbname=known["NAME"],
        host=known["HOST"] or known["OPTIONS"].get("host"),
        port=known["PORT"],
        user=known["USER"],
        password=known["PASSWORD"],
        options=options,
        autocommit=autocommit,
    ) as session:
        yield session


def met(
    session: psycopg.Connection[Any], statement: str, params: Sequence[Any] = ()
) -> tuple[str, str]:
    """(SQLSTATE, constraint) of the error that the statement met, two empty strings when it went through."""
    try:
        session.execute(statement, params)
    except psycopg.Error as error:
        return error.sqlstate or "", error.diag.constraint_name or ""
    return "", ""


def refusal(
    session: psycopg.Connection[Any], statement: str, params: Sequence[Any] = ()
) -> tuple[str, str]:
    """The same of a statement that must not go through."""
    error = met(session, statement, params)
    assert error[0], f"went through: {statement}"
    return error


def await_true(session: psycopg.Connection[Any], question: str, params: Sequence[Any] = ()) -> None:
    """Ask the server until it says yes, with a limit."""
    pause = threading.Event()
    for _ in range(int(WAIT_SECONDS / 0.01)):
        row = session.execute(question, params).fetchone()
        if row is not None and row[0]:
            return
        pause.wait(0.01)
    raise AssertionError(f"still not true after {WAIT_SECONDS:g} s: {question}")


LOCK_WAITS = """
SELECT count(*) >= %s FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


def await_lock_wait(session: psycopg.Connection[Any], sessions: int = 1) -> None:
    """Until the server itself reports that so many sessions wait for a lock."""
    await_true(session, LOCK_WAITS, [sessions])


def cut(pids: Sequence[int]) -> None:
    """End these sessions from a connection of its own, as a failing network would."""
    with connected() as session:
        for pid in pids:
            session.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


def pid() -> int:
    """The server process of this thread's own Django connection."""
    connection.ensure_connection()
    return int(connection.connection.info.backend_pid)


class Thread[T](threading.Thread):
    """Runs `work` on a Django connection of its own and hands its result, or its error, to `result`."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._value: list[T] = []
        self._error: BaseException | None = None
        self.start()

    @override
    def run(self) -> None:
        try:
            self._value.append(self._work())
        except BaseException as error:  # noqa: BLE001  it is raised again in the test's own thread
            self._error = error
        finally:
            connection.close()

    def result(self, seconds: float = 20.0) -> T:
        self.join(seconds)
        assert not self.is_alive(), f"still at work after {seconds:g} s"
        if self._error is not None:
            raise self._error
        return self._value[0]


def together[T](count: int, work: Callable[[int], T]) -> list[T]:
    """Run work(0) .. work(count - 1) in threads that start at one moment; their results in order."""
    start = threading.Barrier(count)

    def one(number: int) -> T:
        start.wait(WAIT_SECONDS)
        return work(number)

    def bound(number: int) -> Callable[[], T]:
        return lambda: one(number)

    threads = [Thread(bound(number)) for number in range(count)]
    return [thread.result() for thread in threads]

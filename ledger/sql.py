"""One statement at a time, on the loop's own connection; and what each class of database error asks for.

repeat      40 (serialization, deadlock), 55P03 (lock timeout), 57014 (statement timeout), 53100 and 53200 (no disk or
            memory left): the whole, again
reconnect   08, 57P01-03, 57P05 and 25P03-04 (idle or open for too long), 53300 (too many connections), 25006 (read-only),
            or a connection that is simply gone: a new connection, then the whole from memory
row         22, 23, 42, 54, P0 or text that cannot be encoded: some row can never be written; the others must be

Nothing here waits without a limit: `persist` repeats until its deadline and then raises what it last saw.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import psycopg
from django.db import Error, InterfaceError, OperationalError, connection, transaction

from ledger import clock, telemetry

REPEAT = ("40", "55P03", "57014", "53100", "53200")
RECONNECT = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "53300", "25006")
ROW = ("22", "23", "42", "54", "P0")
PAUSE_SECONDS = 0.05
PAUSE_SECONDS_MAX = 1.0


class Trouble(StrEnum):
    REPEAT = "repeat"
    RECONNECT = "reconnect"
    ROW = "row"
    OTHER = "other"


def state_of(error: BaseException) -> str:
    """The SQLSTATE behind Django's wrapper, or an empty string."""
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    return (cause.sqlstate or "") if isinstance(cause, psycopg.Error) else ""


def constraint_of(error: BaseException) -> str:
    """The name of the constraint (or of the guard) that refused, or an empty string."""
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    return (cause.diag.constraint_name or "") if isinstance(cause, psycopg.Error) else ""


def trouble(error: BaseException) -> Trouble:
    """What an error asks for."""
    state = state_of(error)
    if isinstance(error, UnicodeError) or state.startswith(ROW):
        return Trouble.ROW
    if state.startswith(REPEAT):
        return Trouble.REPEAT
    if state.startswith(RECONNECT):
        return Trouble.RECONNECT
    if not state and isinstance(error, OperationalError | InterfaceError):
        return Trouble.RECONNECT
    return Trouble.OTHER


def passes(error: BaseException) -> bool:
    """Whether the same may go through later: the server is away, busy, or does not write now."""
    is_away = isinstance(error, OperationalError | InterfaceError)
    return is_away or trouble(error) in (Trouble.REPEAT, Trouble.RECONNECT)


def fetch(query: str, params: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
    """Run one statement and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        # `description` would make an object for each column, only to say whether there are rows.
        result = cursor.pgresult
        return cursor.fetchall() if result and result.nfields else []


@contextmanager
def snapshot() -> Iterator[None]:
    """Several reads as of one moment: of a job and its journal read at two, a claim in between would look like doubt. It
    lasts for the block, which therefore holds few statements and no wait.
    """
    assert not connection.in_atomic_block, "a snapshot must not outlast its reads"
    with transaction.atomic():
        fetch("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def persist[T](write: Callable[[], T], deadline: float) -> T:
    """Run `write` until it goes through, for errors that ask to be repeated, until the monotonic `deadline`.

    `write` must be safe to repeat after its commit's reply was lost: it recognises what it has already done.
    """
    pause = PAUSE_SECONDS
    while True:
        try:
            return write()
        except (Error, psycopg.Error) as error:
            asked = trouble(error)
            if (
                asked not in (Trouble.REPEAT, Trouble.RECONNECT)
                or clock.monotonic() + pause > deadline
            ):
                raise
            telemetry.emit(
                "write.repeated", level="warning", sqlstate=state_of(error), reason=str(asked)
            )
        if asked is Trouble.RECONNECT:
            replace_connection()
        clock.pause(pause)
        pause = min(pause * 2, PAUSE_SECONDS_MAX)


def replace_connection() -> None:
    """Drop this thread's connection, whatever its condition; the next statement opens another."""
    try:
        connection.close()
    except (Error, psycopg.Error) as error:
        telemetry.emit("connection.replaced", level="warning", sqlstate=state_of(error))
        connection.connection = None
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.needs_rollback = False

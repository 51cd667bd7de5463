"""A batch of jobs that one row refuses is done again one by one: the bad one is skipped and shown, and stops nobody.

What would break without it: a sweep is one statement over many jobs, so that one row that can never be written would fail
the pass, and every later one, for all the others. Errors that are not a row's (a lost connection, a deadlock, a timeout)
pass through: they end this pass, and the next one begins anew from the rows.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

import psycopg
from django.db import Error

from ledger import sql, telemetry

ALONE_MAX = 1_000  # jobs that one pass tries alone
OF_NO_ROW = (
    "42501",
    "42P01",
    "42703",
    "42883",
)  # no right, table, column or function: the same for every row

Only = Sequence[UUID] | None


def written[T](
    sweep: str, write: Callable[[Only], list[T]], find: Callable[[Sequence[UUID]], list[UUID]]
) -> list[T]:
    """What `write(None)` returns; or, where a row refuses, what `write([job])` does for each that `find(tried)` finds.

    `write` commits by itself: it must not be called inside a transaction, which a refusal would have ended.
    """
    try:
        return write(None)
    except (Error, psycopg.Error) as error:
        if not _is_of_a_row(error):
            raise
    done: list[T] = []
    tried: list[UUID] = []
    while len(tried) < ALONE_MAX and (found := find(tried)):
        for job in found[: ALONE_MAX - len(tried)]:
            tried.append(job)
            done += _alone(sweep, write, job)
    return done


def _alone[T](sweep: str, write: Callable[[Only], list[T]], job: UUID) -> list[T]:
    try:
        return write([job])
    except (Error, psycopg.Error) as error:
        if not _is_of_a_row(error):
            raise
        telemetry.refused_rows.labels(sweep=sweep).inc()
        state, guard = sql.state_of(error), sql.constraint_of(error)
        telemetry.emit(
            "row.refused", level="error", sweep=sweep, job=str(job), sqlstate=state, reason=guard
        )
        return []


def _is_of_a_row(error: Exception) -> bool:
    return sql.trouble(error) is sql.Trouble.ROW and sql.state_of(error) not in OF_NO_ROW

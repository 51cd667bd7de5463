"""When each sweep last succeeded, stored and shown: a beat that is dead raises an alert instead of losing time in silence.

One function stands around every sweep. It keeps no promise by itself: a note that could not be written is a pass that
looks older than it is, and never fails the sweep. Beside that it drops a pass that comes right after another: of a
backlog after an outage, or of a second beat, one in half a period is enough, and the rest costs one look each.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
from django.conf import settings
from django.db import Error

from ledger import sql, telemetry

OVERDUE_PERIODS = 10


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass did. `skipped`: another pass of this sweep was at work, so that this one proves nothing."""

    name: str
    count: int = 0
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Pass:
    """The last passes of one sweep. `age_seconds` is None for one that never succeeded."""

    name: str
    period_seconds: float
    age_seconds: float | None
    count: int
    failed_seconds: float | None
    failure: str

    def is_failing(self) -> bool:
        """Its last pass failed."""
        if self.failed_seconds is None:
            return False
        return self.age_seconds is None or self.failed_seconds < self.age_seconds

    def is_overdue(self) -> bool:
        return self.age_seconds is None or self.age_seconds > OVERDUE_PERIODS * self.period_seconds


# A clock that was put back must not silence a sweep: a success of the future counts for nothing.
JUST_NOW = """
SELECT 1 FROM ledger_sweep WHERE name = %s
    AND succeeded_at BETWEEN ledger_now() - make_interval(secs => %s) AND ledger_now()
"""
SUCCEEDED = """
INSERT INTO ledger_sweep (name, succeeded_at, count) VALUES (%s, ledger_now(), %s)
ON CONFLICT (name) DO UPDATE SET succeeded_at = excluded.succeeded_at, count = excluded.count
"""
FAILED = """
INSERT INTO ledger_sweep (name, failed_at, failure) VALUES (%s, ledger_now(), %s)
ON CONFLICT (name) DO UPDATE SET failed_at = excluded.failed_at, failure = excluded.failure
"""
PASSES = """
SELECT s.name, s.period, extract(epoch FROM ledger_now() - w.succeeded_at)::float8, coalesce(w.count, 0),
    extract(epoch FROM ledger_now() - w.failed_at)::float8, coalesce(w.failure, '')
FROM unnest(%s::text[], %s::float8[]) AS s(name, period) LEFT JOIN ledger_sweep w ON w.name = s.name ORDER BY s.name
"""


def run(name: str, sweep: Callable[[], Swept]) -> Swept | None:
    """One pass of this sweep, noted; None where one has succeeded just now. Raises what the sweep raises."""
    try:
        if sql.fetch(JUST_NOW, [name, settings.SWEEPS[name] / 2]):
            return None
        swept = sweep()
    except Exception as error:
        sql.replace_connection()
        failure = f"{type(error).__name__} {sql.state_of(error)}".strip()
        telemetry.emit("sweep.failed", level="error", sweep=name, error_class=failure)
        telemetry.sweep_failures.labels(sweep=name).inc()
        _note(FAILED, [name, failure[:200]])
        raise
    if not swept.skipped:
        _note(SUCCEEDED, [name, swept.count])
    return swept


def passes() -> list[Pass]:
    """Every sweep that this build's beat is to send, in order of name."""
    periods = settings.SWEEPS
    return list(_read(list(periods), list(periods.values())))


def _read(names: list[str], periods: list[float]) -> Iterator[Pass]:
    for row in sql.fetch(PASSES, [names, periods]):
        yield Pass(*row)


def _note(statement: str, params: list[object]) -> None:
    try:
        sql.fetch(statement, params)
    except (Error, psycopg.Error) as error:
        telemetry.emit("sweep.unnoted", level="warning", sqlstate=sql.state_of(error))

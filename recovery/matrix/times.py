"""The time of a matrix: the database's and the process's run ahead by as much as a case says, so that nothing is waited for.

Kept here: `ledger_now()` is put back whatever happens, and no other database than a test's is touched.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import override

from django.db import connection

from ledger import clock, guards, sql

AHEAD = """
CREATE TABLE IF NOT EXISTS matrix_time (ahead interval NOT NULL);
DELETE FROM matrix_time;
INSERT INTO matrix_time VALUES (interval '0');
GRANT SELECT ON matrix_time TO PUBLIC;
CREATE OR REPLACE FUNCTION ledger_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT clock_timestamp() + (SELECT ahead FROM matrix_time) $$;
"""


class Time(clock.Clock):
    """Stands still for the process until somebody lets it pass: what a run does never hangs on how fast it is."""

    def __init__(self) -> None:
        self._now = 1_000.0

    @override
    def monotonic(self) -> float:
        return self._now

    @override
    def pause(self, seconds: float) -> None:
        self._now += seconds

    def pass_by(self, seconds: float) -> None:
        """Let so much time pass for everybody."""
        self._now += seconds
        sql.fetch("UPDATE matrix_time SET ahead = ahead + make_interval(secs => %s)", [seconds])


@contextmanager
def ahead() -> Iterator[Time]:
    """Within the block, time passes only by `pass_by` (and, in the database, by itself too)."""
    assert connection.settings_dict["NAME"].startswith("test_"), "this is not a test database"
    time = Time()
    sql.fetch(AHEAD)
    try:
        with clock.replaced(time):
            yield time
    finally:
        sql.replace_connection()
        sql.fetch(guards.LEDGER_NOW)
        sql.fetch("DROP TABLE matrix_time")

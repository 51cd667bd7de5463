"""Retention: removes ended jobs past their term, through the one database function that may, under its own role.

Apps that point at a job register a hook, which removes their rows of these jobs in the same transaction. The submission
key stays used for ever: a late retry is answered "gone", never with a second booking.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import connections, transaction

from ledger import crashpoints, singly, sql, telemetry

Hook = Callable[[Sequence[UUID]], None]
_hooks: list[Hook] = []

PAST_TERM = """
SELECT id FROM ledger_job WHERE state IN ('confirmed', 'refused', 'compensated', 'closed')
    AND finished_at < (SELECT ledger_now()) - %(term)s {only} ORDER BY finished_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""
PAST_TERM_IDS = """
SELECT id FROM ledger_job WHERE state IN ('confirmed', 'refused', 'compensated', 'closed')
    AND finished_at < (SELECT ledger_now()) - %s AND id <> ALL(%s::uuid[]) ORDER BY finished_at LIMIT %s
"""


def register(hook: Hook) -> None:
    """Have `hook(job ids)` remove an app's own rows before the jobs go."""
    _hooks.append(hook)


@contextmanager
def logged_in() -> Iterator[None]:
    """Within the block, this thread's connection is another one to the same database, in the one role that may remove."""
    before = connections["default"]
    own = before.copy()
    own.settings_dict = {**own.settings_dict, **settings.RETENTION_LOGIN}
    connections["default"] = own
    try:
        yield
    finally:
        own.close()
        connections["default"] = before


def retain(term: timedelta, limit: int = 500) -> int:
    """Remove at most `limit` jobs that ended longer than `term` ago; returns how many. ValueError under a day."""
    if term < timedelta(days=1):
        raise ValueError(f"a retention term of {term} is under a day")
    removed = sum(
        singly.written("retain", partial(_remove, term, limit), partial(_past_term, term, limit))
    )
    if removed:
        telemetry.emit("jobs.retained", retained=removed)
    return removed


def _remove(term: timedelta, limit: int, only: singly.Only) -> list[int]:
    statement = PAST_TERM.format(only="" if only is None else "AND id = ANY(%(only)s::uuid[])")
    removed = 0
    crashpoints.reach("retain.before")
    with transaction.atomic(durable=True):
        params = {"term": term, "limit": limit, "only": list(only or ())}
        if ids := sorted(row[0] for row in sql.fetch(statement, params)):
            for hook in _hooks:
                hook(ids)
            removed = sql.fetch("SELECT ledger_retain(%s::uuid[], %s)", [ids, term])[0][0]
    crashpoints.reach("retain.after")
    return [removed]


def _past_term(term: timedelta, limit: int, tried: Sequence[UUID]) -> list[UUID]:
    return [row[0] for row in sql.fetch(PAST_TERM_IDS, [term, list(tried), limit])]

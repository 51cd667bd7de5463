"""Retention: removes ended jobs past their term, through the one database function that may, under its own role.

Apps that point at a job register a hook, which removes their rows of these jobs in the same transaction. The submission
key stays used for ever: a late retry is answered "gone", never with a second booking.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from django.db import transaction

from ledger import crashpoints, sql, telemetry

Hook = Callable[[Sequence[UUID]], None]
_hooks: list[Hook] = []

PAST_TERM = """
SELECT id FROM ledger_job WHERE state IN ('confirmed', 'refused', 'compensated', 'closed')
    AND finished_at < ledger_now() - %s ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
"""


def register(hook: Hook) -> None:
    """Have `hook(job ids)` remove an app's own rows before the jobs go."""
    _hooks.append(hook)


def retain(term: timedelta, limit: int = 500) -> int:
    """Remove at most `limit` jobs that ended longer than `term` ago; returns how many. ValueError under a day."""
    if term < timedelta(days=1):
        raise ValueError(f"a retention term of {term} is under a day")
    crashpoints.reach("retain.before")
    with transaction.atomic(durable=True):
        ids = [row[0] for row in sql.fetch(PAST_TERM, [term, limit])]
        for hook in _hooks:
            hook(ids)
        removed: int = sql.fetch("SELECT ledger_retain(%s::uuid[], %s)", [ids, term])[0][0]
    crashpoints.reach("retain.after")
    telemetry.emit("jobs.retained", retained=removed)
    return removed

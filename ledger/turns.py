"""Turning a job back from outside: an accepted cancel, a passed deadline. Decided once, by one conditional UPDATE.

The invariant: nothing goes back past the pivot. Both sides test columns of the same row: this update asks for `forward`
and no pivot sent, and the owner's write of a pivot attempt asks for the direction it planned with, so that exactly one of
them wins. Like promotion, this writer takes no authority: fence and seq stay, and the owner finds out when it settles or
renews. A job that nobody runs moves to the compensation lane at once, due now.

A job that is far past its deadline with its pivot sent can only go forward, and has not for long: it parks, so that a
person sees it. That takes authority, as every park does; a retry gives it a fresh term.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from ledger import crashpoints, singly, sql, telemetry, tickets
from ledger.states import Lane, ParkedReason

# In the order of the deadlines' index: by id, the planner reads the whole table, ended jobs too, to find few. Who skips
# what is locked waits for nobody, so that the order cannot matter to a deadlock.
TURN = """
WITH due AS MATERIALIZED (
    SELECT id FROM ledger_job WHERE {which} AND direction = 'forward' AND NOT pivot_sent
        AND state IN ('waiting', 'queued', 'running') ORDER BY deadline_at LIMIT %(limit)s FOR NO KEY UPDATE {skip})
UPDATE ledger_job j SET acting_fence = j.fence, direction = 'backward', turned_by = %(by)s, turned_reason = %(reason)s,
    turned_at = ledger_now(),
    state = CASE WHEN j.state = 'running' THEN j.state ELSE 'waiting' END,
    lane = CASE WHEN j.state = 'running' THEN j.lane ELSE 'compensation' END,
    due_at = CASE WHEN j.state = 'running' THEN j.due_at ELSE ledger_now() END
FROM due WHERE j.id = due.id RETURNING j.id
"""
PAST_DEADLINE = "deadline_at < (SELECT ledger_now()) AND finished_at IS NULL AND parked_at IS NULL"
TURNABLE = """
SELECT id FROM ledger_job WHERE deadline_at < (SELECT ledger_now()) AND finished_at IS NULL AND parked_at IS NULL
    AND direction = 'forward' AND NOT pivot_sent AND id <> ALL(%s::uuid[]) ORDER BY deadline_at LIMIT %s
"""

OVERDUE = """
deadline_at < (SELECT ledger_now()) - make_interval(secs => %(grace)s) AND finished_at IS NULL AND parked_at IS NULL
    AND direction = 'forward' AND pivot_sent AND state IN ('waiting', 'queued')"""
PARK_OVERDUE = f"""
WITH due AS MATERIALIZED (
    SELECT id, fence FROM ledger_job WHERE {OVERDUE} {{only}} ORDER BY deadline_at LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED)
UPDATE ledger_job j SET acting_fence = due.fence, fence = due.fence + 1, state = 'parked', parked_reason = %(reason)s,
    parked_detail = format('its deadline was %%s, and its pivot may have been sent', j.deadline_at), parked_at = ledger_now()
FROM due WHERE j.id = due.id AND j.fence = due.fence RETURNING j.id
"""  # noqa: S608  constants of this module
OVERDUE_IDS = f"""
SELECT id FROM ledger_job WHERE {OVERDUE} AND id <> ALL(%(tried)s::uuid[]) ORDER BY deadline_at LIMIT %(limit)s
"""  # noqa: S608


CANCEL = TURN.format(which="id = %(job)s", skip="")
LOCK = "SELECT id FROM ledger_job WHERE id = %s FOR NO KEY UPDATE"


def cancel(job_id: UUID, *, by: str, reason: str) -> bool:
    """Turn one job back. False: it has ended, is parked, goes back already, or its pivot may have been sent."""
    return bool(_turn(CANCEL, {"job": job_id, "limit": 1, "by": by, "reason": reason}))


def cancel_if(is_so: Callable[[], bool], job_id: UUID, *, by: str, reason: str) -> bool:
    """As `cancel`, provided that `is_so()`, which is asked while nobody else can write to the job, and reads only."""
    params = {"job": job_id, "limit": 1, "by": by, "reason": reason}
    crashpoints.reach("turn.before")
    with transaction.atomic(durable=True):
        sql.fetch(LOCK, [job_id])
        turned = sql.fetch(CANCEL, params) if is_so() else []
    crashpoints.reach("turn.after")
    _tell(turned, by)
    return bool(turned)


def expire_deadlines(limit: int) -> int:
    """Turn back at most `limit` jobs whose deadline has passed before their pivot; returns how many."""
    return len(singly.written("deadlines", partial(_expire, limit), partial(_turnable, limit)))


def _expire(limit: int, only: singly.Only) -> list[Any]:
    which = PAST_DEADLINE if only is None else f"{PAST_DEADLINE} AND id = ANY(%(only)s::uuid[])"
    params = {"limit": limit, "by": "deadline", "reason": "the deadline passed before the pivot"}
    statement = TURN.format(which=which, skip="SKIP LOCKED")
    return _turn(statement, params | {"only": list(only or ())})


def _turnable(limit: int, tried: Sequence[UUID]) -> list[UUID]:
    return [row[0] for row in sql.fetch(TURNABLE, [list(tried), limit])]


def _turn(statement: str, params: dict[str, Any]) -> list[Any]:
    crashpoints.reach("turn.before")
    turned = sql.fetch(statement, params)
    crashpoints.reach("turn.after")
    _tell(turned, params["by"])
    return turned


def _tell(turned: Sequence[Any], by: str) -> None:
    """Once it is committed: a person's act turns a job in a transaction of its own."""
    if turned:
        transaction.on_commit(partial(_turned, len(turned), by), robust=True)


def _turned(count: int, by: str) -> None:
    telemetry.emit("jobs.turned", count=count, reason=by)
    tickets.ring(Lane.COMPENSATION)


def park_overdue(limit: int) -> int:
    """Park at most `limit` jobs that nobody runs, long past their deadline and after their pivot; returns how many."""
    return len(singly.written("overdue", partial(_park, limit), partial(_overdue, limit)))


def _park(limit: int, only: singly.Only) -> list[Any]:
    picked = "" if only is None else "AND id = ANY(%(only)s::uuid[])"
    given = {"only": list(only or ()), "reason": ParkedReason.DEADLINE_AFTER_PIVOT.value}
    crashpoints.reach("overdue.before")
    parked = sql.fetch(PARK_OVERDUE.format(only=picked), _params(limit) | given)
    crashpoints.reach("overdue.after")
    if parked:
        telemetry.emit("jobs.overdue", level="error", count=len(parked))
    return parked


def _overdue(limit: int, tried: Sequence[UUID]) -> list[UUID]:
    return [row[0] for row in sql.fetch(OVERDUE_IDS, _params(limit) | {"tried": list(tried)})]


def _params(limit: int) -> dict[str, Any]:
    return {"limit": limit, "grace": settings.DEADLINE_AFTER_PIVOT_SECONDS}

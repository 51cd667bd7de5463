"""Turning a job back from outside: an accepted cancel, a passed deadline. Decided once, by one conditional UPDATE.

The invariant: nothing goes back past the pivot. Both sides test columns of the same row: this update asks for `forward`
and no pivot sent, and the owner's write of a pivot attempt asks for the direction it planned with, so that exactly one of
them wins. Like promotion, this writer takes no authority: fence and seq stay, and the owner finds out when it settles or
renews. A job that nobody runs moves to the compensation lane at once, due now.
"""

from typing import Any
from uuid import UUID

from ledger import crashpoints, sql, telemetry, tickets
from ledger.states import Lane

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
PAST_DEADLINE = "deadline_at < (SELECT ledger_now()) AND finished_at IS NULL"


def cancel(job_id: UUID, *, by: str, reason: str) -> bool:
    """Turn one job back. False: it has ended, is parked, goes back already, or its pivot may have been sent."""
    params = {"job": job_id, "limit": 1, "by": by, "reason": reason}
    return bool(_turn(TURN.format(which="id = %(job)s", skip=""), params))


def expire_deadlines(limit: int) -> int:
    """Turn back at most `limit` jobs whose deadline has passed before their pivot; returns how many."""
    params = {"limit": limit, "by": "deadline", "reason": "the deadline passed before the pivot"}
    return len(_turn(TURN.format(which=PAST_DEADLINE, skip="SKIP LOCKED"), params))


def _turn(statement: str, params: dict[str, Any]) -> list[Any]:
    crashpoints.reach("turn.before")
    turned = sql.fetch(statement, params)
    crashpoints.reach("turn.after")
    if turned:
        telemetry.emit("jobs.turned", count=len(turned), reason=params["by"])
        tickets.ring(Lane.COMPENSATION)
    return turned

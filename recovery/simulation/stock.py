"""The rows that LOCAL steps change: items, of which each may be held by one operation at a time.

A hold expires unless it is secured. Every change is conditional on the operation that holds and on the state it is in, so
that a late undo cannot give back what belongs to another job by now.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ledger import outcomes, saga, sql

HOLD_SECONDS = 90

HOLD = """
INSERT INTO sim.hold (operation_id, item, state, version, held_until)
SELECT %(holder)s, %(item)s, 'held', 1, ledger_now() + make_interval(secs => %(seconds)s)
WHERE NOT EXISTS (SELECT FROM sim.hold WHERE item = %(item)s AND state IN ('held', 'secured'))
ON CONFLICT (operation_id) DO NOTHING RETURNING operation_id
"""
STATE = "SELECT state FROM sim.hold WHERE operation_id = %(holder)s"
MOVE = """
UPDATE sim.hold SET state = %(to)s, version = version + 1, held_until = ledger_now() + make_interval(secs => %(seconds)s)
WHERE operation_id = %(holder)s AND state = %(was)s RETURNING state
"""
EXPIRE = "UPDATE sim.hold SET state = 'expired', version = version + 1 WHERE state = 'held' AND held_until < ledger_now()"


def hold(call: saga.Call) -> outcomes.Outcome:
    holder, item = call.operation_id, call.arguments["item"]
    params = {"holder": holder, "item": item, "seconds": HOLD_SECONDS}
    if sql.fetch(HOLD, params) or _state(holder) is not None:
        return outcomes.Confirmed(ref=holder, data={"holder": holder})
    return outcomes.Refused("taken")


def secure(call: saga.Call) -> outcomes.Outcome:
    holder = call.arguments["holder"]
    if _move(holder, "held", "secured") or _state(holder) == "secured":
        return outcomes.Confirmed(ref=holder)
    return outcomes.Refused("hold_lost")


def release_if_held(call: saga.Call) -> outcomes.Outcome:
    holder = call.arguments["holder"]
    if _move(holder, "held", "released"):
        return outcomes.Confirmed(ref=holder)
    if _state(holder) in ("released", "expired"):
        return outcomes.Confirmed(ref=holder, stale=True)
    return outcomes.Unknown("not_given_up")


def release_if_secured(call: saga.Call) -> outcomes.Outcome:
    holder = call.arguments["holder"]
    if _move(holder, "secured", "held") or _state(holder) == "held":
        return outcomes.Confirmed(ref=holder)
    return outcomes.Confirmed(ref=holder, stale=True)


def expire() -> None:
    """The sweep of holds."""
    sql.fetch(EXPIRE)


def arguments(request: Mapping[str, Any], _done: Mapping[str, saga.Done]) -> dict[str, Any]:
    return {"item": request["item"]}


def holder_arguments(request: Mapping[str, Any], done: Mapping[str, saga.Done]) -> dict[str, Any]:
    return {"item": request["item"], "holder": done["hold"].data["holder"]}


def _lock(keys: Sequence[tuple[Any, ...]]) -> None:
    names = [key[0] for key in keys]
    sql.fetch("SELECT name FROM sim.item WHERE name = ANY(%s) ORDER BY name FOR UPDATE", [names])


ITEMS = saga.Rows(name="sim.item", keys=lambda arguments: [(arguments["item"],)], lock=_lock)


def _move(holder: str, was: str, to: str) -> bool:
    params = {"holder": holder, "was": was, "to": to, "seconds": HOLD_SECONDS}
    return bool(sql.fetch(MOVE, params))


def _state(holder: str) -> str | None:
    rows = sql.fetch(STATE, {"holder": holder})
    return rows[0][0] if rows else None

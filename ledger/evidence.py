"""Makes whatever a provider said storable, so that a bad reply cannot lose the proof of a payment.

What comes out is JSON that PostgreSQL's jsonb takes: text without NUL and lone surrogates (both are escaped visibly),
bounded in size, depth and numbers. What had to be cut is replaced by its length and the SHA-256 of its whole.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ledger import outcomes
from ledger.outcomes import ReceiptOutcome

TEXT_MAX = 4_096
ITEMS_MAX = 200
DEPTH_MAX = 8
INTEGER_MAX = 2**63 - 1
REASON_MAX = 200


def of(outcome: outcomes.Outcome | outcomes.NotLanded) -> tuple[str, dict[str, Any]]:
    """(receipt or sighting outcome, storable evidence) of what a handler or a probe returned."""
    match outcome:
        case outcomes.Confirmed(ref, data, cost, stale):
            found: dict[str, Any] = {"ref": storable(ref), "data": storable(data)}
            if cost is not None:
                found["cost"] = storable(cost.as_json())
            if stale:
                found["stale"] = True
            return ReceiptOutcome.CONFIRMED, found
        case outcomes.Refused():
            return ReceiptOutcome.REFUSED, _reasoned(outcome.reason, outcome.data)
        case outcomes.NotSent():
            return ReceiptOutcome.NOT_SENT, _reasoned(outcome.reason, {}) | {
                "released": outcome.released
            }
        case outcomes.Throttled():
            return ReceiptOutcome.THROTTLED, _reasoned(outcome.reason, {}) | {
                "after_seconds": str(max(0.0, outcome.after.total_seconds()))
            }
        case outcomes.NotLanded(data):
            return "not_landed", {"data": storable(data)}
        case _:
            return ReceiptOutcome.UNKNOWN, _reasoned(outcome.reason, outcome.data)


def storable(value: Any, depth: int = 0) -> Any:
    """`value` as bounded JSON that the database can keep."""
    if isinstance(value, Mapping | list | tuple):
        return _container(value, depth) if depth < DEPTH_MAX else _digest(repr(value)[:TEXT_MAX])
    return _scalar(value)


def _container(value: Mapping[Any, Any] | Sequence[Any], depth: int) -> Any:
    if isinstance(value, Mapping):
        items = list(value.items())[:ITEMS_MAX]
        return {_text(str(name)): storable(member, depth + 1) for name, member in items}
    return [storable(item, depth + 1) for item in value[:ITEMS_MAX]]


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= INTEGER_MAX else _text(str(value)[:TEXT_MAX])
    if isinstance(value, bytes):
        return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    # A float too: there is none on any path, and its spelling is evidence enough.
    return _text(value if isinstance(value, str) else repr(value))


def _reasoned(reason: str, data: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"reason": _text(reason)[:REASON_MAX]}
    if data:
        found["data"] = storable(data)
    return found


def _text(value: str) -> str:
    clean = value.replace("\x00", "\\u0000").encode("utf-8", "backslashreplace").decode("utf-8")
    if len(clean) <= TEXT_MAX:
        return clean
    digest = hashlib.sha256(clean.encode()).hexdigest()
    return f"{clean[:TEXT_MAX]}… ({len(clean)} characters, sha256 {digest})"


def _digest(text: str) -> dict[str, Any]:
    raw = text.encode("utf-8", "backslashreplace")
    return {"cut": True, "length": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}

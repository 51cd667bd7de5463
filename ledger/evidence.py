"""Makes whatever a provider said storable, so that a bad reply cannot lose the proof of a payment.

What comes out is JSON that PostgreSQL's jsonb takes: text without NUL and lone surrogates (both are escaped visibly),
bounded in size, depth and numbers. What had to be cut is replaced by its length and the SHA-256 of its whole.
"""

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from itertools import islice
from typing import Any

from ledger import outcomes
from ledger.outcomes import ReceiptOutcome

TEXT_MAX = 4_096
ITEMS_MAX = 200
DEPTH_MAX = 8
INTEGER_MAX = 2**63 - 1
REASON_MAX = 200
NODES_MAX = 5_000  # values kept of one answer
SIZE_MAX = 256 * 1024  # characters kept of one answer, give or take one text
DIGEST_NODES_MAX = 1_000_000
DECIMAL_BITS_MAX = 10_000


def of(outcome: outcomes.Outcome | outcomes.NotLanded) -> tuple[str, dict[str, Any]]:
    """(receipt or sighting outcome, storable evidence) of what a handler or a probe returned."""
    match outcome:
        case outcomes.Confirmed(ref, data, cost, stale):
            found = {"ref": storable(ref), "data": storable(data), **_priced(cost)}
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
            found = _reasoned(outcome.reason, outcome.data) | _patience(outcome.after)
            return ReceiptOutcome.THROTTLED, found
        case outcomes.NotLanded(data):
            return "not_landed", {"data": storable(data)}
        case _:
            return ReceiptOutcome.UNKNOWN, _reasoned(outcome.reason, outcome.data) | _patience(
                outcome.after
            )


def storable(value: Any) -> Any:
    """`value` as bounded JSON that the database can keep."""
    return _Keeper().keep(value, 0)


class _Keeper:
    """Walks one value; what is over the bounds of depth, count or size is replaced by its digest."""

    def __init__(self) -> None:
        self._items = NODES_MAX
        self._characters = SIZE_MAX

    def keep(self, value: Any, depth: int) -> Any:
        self._items -= 1
        if not isinstance(value, Mapping | list | tuple):
            return self._scalar(value)
        if depth >= DEPTH_MAX or self._items < 0 or self._characters < 0:
            return _digest(value)
        if isinstance(value, Mapping):
            pairs = islice(value.items(), ITEMS_MAX)
            kept = {self._spelt(_text_of(name)): self.keep(v, depth + 1) for name, v in pairs}
            return kept if len(value) <= ITEMS_MAX else {**kept, "cut": _digest(value)}
        items = [self.keep(item, depth + 1) for item in value[:ITEMS_MAX]]
        return items if len(value) <= ITEMS_MAX else [*items, _digest(value)]

    def _scalar(self, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int) and abs(value) <= INTEGER_MAX:
            return value
        if isinstance(value, bytes):
            return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
        # A float too: there is none on any path, and its spelling is evidence enough.
        return self._spelt(_text_of(value))

    def _spelt(self, text: str) -> str:
        kept = _text(text) if self._characters > 0 else _text(text, 0)
        self._characters -= len(kept)
        return kept


def _priced(cost: object) -> dict[str, Any]:
    """Handlers are other people's code: a fee that is none takes nothing from the proof of the payment."""
    if isinstance(cost, outcomes.Money):
        return {"cost": storable(cost.as_json())}
    return {} if cost is None else {"unreadable_cost": storable(cost)}


def _patience(after: timedelta | None) -> dict[str, str]:
    return {} if after is None else {"after_seconds": str(max(0.0, after.total_seconds()))}


def _reasoned(reason: str, data: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"reason": _text(_text_of(reason))[:REASON_MAX]}
    if data:
        found["data"] = storable(data)
    return found


def _text(value: str, most: int = TEXT_MAX) -> str:
    clean = value.replace("\x00", "\\u0000").encode("utf-8", "backslashreplace").decode("utf-8")
    if len(clean) <= most:
        return clean
    digest = hashlib.sha256(clean.encode()).hexdigest()
    return f"{clean[:most]}… ({len(clean)} characters, sha256 {digest})"


def _text_of(value: Any) -> str:
    """Never raises: an integer over Python's limit of digits is spelt in hexadecimal, a broken `repr` by its type."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and value.bit_length() > DECIMAL_BITS_MAX:
        return hex(value)
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  whatever a foreign object does, its type is evidence
        return f"<{type(value).__name__}>"


def _digest(value: Any) -> dict[str, Any]:
    """Length and hash of the whole, walked without recursion: nesting may be deeper than the interpreter goes."""
    digest, length, left = hashlib.sha256(), 0, [value]
    for _ in range(DIGEST_NODES_MAX):
        if not left:
            break
        item = left.pop()
        if isinstance(item, Mapping):
            token = f"{{{len(item)}"
            left.extend(part for pair in item.items() for part in pair)
        elif isinstance(item, list | tuple):
            token = f"[{len(item)}"
            left.extend(item)
        else:
            token = _text_of(item)
        raw = token.encode("utf-8", "backslashreplace")
        digest.update(len(raw).to_bytes(8) + raw)
        length += len(raw)
    return {"cut": True, "length": length, "sha256": digest.hexdigest()}

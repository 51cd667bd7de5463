"""One booking's life in plain words, for the screen: what our ledger committed beside what the
provider's books say.

Both sides carry their own clock readings of the same machine; the order of the rows is that of
those. Within a millisecond, which is one commit, it is the order of cause and effect. Nothing is
judged by this.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bookings import saga
from ledger import saga as definitions
from ledger.operations import Attempt, Entry, Receipt, Resolution, Sighting

LOCAL_STEPS = frozenset(s.name for s in saga.trip.steps if isinstance(s.effect, definitions.Local))
SEEN = {
    "probe": "asked the provider",
    "tombstone": "told the provider to refuse it",
    "late": "a late answer",
    "sender_lost": "the sender died",
}
TREATMENTS = {
    "refuse": "refused",
    "drop_after": "done, but the reply was dropped",
    "delay": "taken, but worked on slowly",
    "throttle": "not now, come back later",
}
CAUSES = (
    Receipt,
    Sighting,
    Resolution,
    Attempt,
)  # what was learned comes before what is sent because of it
DONE = {"capture": "charged", "refund": "refunded", "ticket": "ticket issued"}


@dataclass(frozen=True, slots=True)
class Row:
    """`at` is a Unix time; one of the two sides is empty."""

    at: float
    ledger: str = ""
    provider: str = ""


def rows(
    entries: Iterable[Entry],
    requests: Iterable[Mapping[str, Any]],
    effects: Iterable[Mapping[str, Any]],
) -> list[Row]:
    """The journal, and the provider's requests and effects, in order of time."""
    causes = sorted(entries, key=lambda entry: CAUSES.index(type(entry)))
    found = [Row(e.at.timestamp(), ledger=text) for e in causes if (text := _entry(e))]
    found += [Row(r["received_at"], provider=_request(r)) for r in requests]
    found += [Row(e["applied_at"], provider=_effect(e)) for e in effects]
    return sorted(found, key=lambda row: round(row.at, 3))


def _entry(entry: Entry) -> str:
    name = f"undo of {entry.step}" if entry.direction == "backward" else entry.step or "the job"
    match entry:
        case Attempt():
            # A local step's attempt commits with its receipt: one row says both.
            return (
                "" if entry.step in LOCAL_STEPS else f"{name}: attempt {entry.n} written, then sent"
            )
        case Receipt():
            reason = entry.evidence.get("reason", "")
            if entry.evidence.get("stale"):
                reason = "stale: the room was given up before, nothing is changed"
            return f"{name}: {entry.outcome}" + (f" ({reason})" if reason else "")
        case Resolution():
            return f"{name}: a person said {entry.act}"
        case Sighting():
            outcome = "no receipt for its attempt" if entry.kind == "sender_lost" else entry.outcome
            return f"{name}: {SEEN.get(entry.kind, entry.kind)}: {outcome.replace('_', ' ')}"


def _request(row: Mapping[str, Any]) -> str:
    treatment = TREATMENTS.get(row["action"], row["action"])
    return f"request: {row['kind']}" + (f" ({treatment})" if treatment else "")


def _effect(row: Mapping[str, Any]) -> str:
    money = f" {row['amount_minor'] / 100:.2f} {row['currency']}" if row["currency"] else ""
    return f"done: {DONE[row['kind']]}{money}"

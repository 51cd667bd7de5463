"""What the processes of the stack logged since a drill began: how often each event, and of some how many jobs."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# Events that speak of several jobs, and the field that says of how many.
COUNTED = {"jobs.reclaimed": "count", "jobs.released": "count", "jobs.promoted": "count"}


class Events:
    """The logs of a directory, from where they end now."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._marks = {log: log.stat().st_size for log in place.glob("*.log")}

    def count(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for log in sorted(self._place.glob("*.log")):
            with log.open("rb") as lines:
                lines.seek(self._marks.get(log, 0))
                found += count(line.decode(errors="replace") for line in lines)
        return found


def count(lines: Iterable[str]) -> Counter[str]:
    """Of the lines that are events. A reclaim is counted by its reason too, a refused write by what it was."""
    found: Counter[str] = Counter()
    for line in lines:
        event = _event(line)
        name = event.get("event")
        if not isinstance(name, str) or "." not in name or " " in name:
            continue
        number = event.get(COUNTED.get(name, ""), 1)
        found[name] += number if isinstance(number, int) else 1
        for detail in ("reason", "write"):
            if name in ("jobs.reclaimed", "write.refused") and detail in event:
                found[f"{name} {event[detail]}"] += number if isinstance(number, int) else 1
    return found


def _event(line: str) -> Mapping[str, Any]:
    if not line.startswith("{"):
        return {}
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

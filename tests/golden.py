"""Golden histories: journals that a build once wrote, kept as files, and what came next after every commit of each.

A later build must decide the same from the same prefix, arguments included, or its saga is another version. `record` makes
one from a job of the test database; a file is added for every saga version that is released, and none is ever changed.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from ledger import actions, models, operations, patience, planner, saga
from ledger.operations import Attempt, Entry, Receipt, Resolution, Sighting
from ledger.outcomes import ReceiptOutcome
from ledger.saga import Direction
from tests import histories

FILES = Path(__file__).parent / "ledger" / "golden"
POLICY = patience.Policy(timedelta(seconds=2), timedelta(seconds=60))
Stored = dict[str, Any]


def load(name: str) -> Stored:
    found: Stored = json.loads((FILES / f"{name}.json").read_text())
    return found


def record(job_id: UUID) -> Stored:
    """The journal of this job as it stands, with what this build makes of every prefix."""
    job = models.Job.objects.get(id=job_id)
    rows = [_row(kind, row) for kind, row in _rows(job_id)]
    for row in rows:
        row["seq"] = row["seq"] or max(
            (r["seq"] for r in rows if r["seq"] and r["at"] <= row["at"]), default=0
        )
    done = {_place(row) for row in rows if row["kind"] == "receipt"}
    for row in rows:  # an attempt without its receipt in the same commit is what that commit began
        row["part"] = int(row["kind"] == "attempt" and _place(row) not in done)
    stored = {
        "saga": job.saga,
        "version": job.version,
        "job": str(job_id),
        "input": job.input,
        "rows": rows,
        "checkpoints": [
            {"seq": c.seq, "format": c.format, "data": c.data}
            for c in models.Checkpoint.objects.filter(job_id=job_id).order_by("id")
        ],
    }
    definition = saga.find(job.saga, job.version)
    assert definition is not None
    return {**stored, "next": replay(stored, definition)}


def replay(stored: Stored, definition: saga.Saga) -> list[list[Any]]:
    """What comes next after each commit, and within it before its next attempts, so that what they send is seen too:
    the arguments as their fingerprint.
    """
    cuts = {(0, 0), *((row["seq"], row["part"]) for row in stored["rows"])}
    return [_next(stored, definition, cut) for cut in sorted(cuts)]


def settled(stored: Stored, seq: int) -> dict[str, str]:
    """What the journal up to this commit has settled: what a checkpoint of that commit must say."""
    ops = operations.fold(_entries(stored, (seq, 1)))
    return {f"{step}:{way}": str(op.final.outcome) for (step, way), op in ops.items() if op.final}


def _next(stored: Stored, definition: saga.Saga, cut: tuple[int, int]) -> list[Any]:
    entries = _entries(stored, cut)
    told = [c["data"]["direction"] for c in stored["checkpoints"] if c["seq"] <= cut[0]]
    direction = Direction(told[-1] if told else "forward")
    lane = "forward" if direction is Direction.FORWARD else "compensation"
    job = planner.Job(UUID(stored["job"]), definition.input(**stored["input"]), direction, lane)
    now = max((entry.at for entry in entries), default=histories.NOW)
    *_, last = planner.ahead(definition, job, entries, now, POLICY)
    said = [part.replace(stored["job"], "JOB") if isinstance(part, str) else part
            for part in histories.told(last.action)]  # fmt: skip
    if isinstance(last.action, actions.Send):
        said.append(last.action.fingerprint.hex())
    return [str(last.direction), *said]


def _entries(stored: Stored, cut: tuple[int, int]) -> list[Entry]:
    """In the order in which `journal.read` hands them out: table by table."""
    rows = [row for row in stored["rows"] if (row["seq"], row["part"]) <= cut]
    return [_MADE[kind](row) for kind in _MADE for row in rows if row["kind"] == kind]


def _rows(job_id: UUID) -> list[tuple[str, Any]]:
    tables = {"attempt": models.Attempt, "receipt": models.Receipt,
              "sighting": models.Sighting, "resolution": models.Resolution}  # fmt: skip
    return [
        (kind, row)
        for kind, table in tables.items()
        for row in table.objects.filter(job_id=job_id).order_by("id")  # type: ignore[attr-defined]
    ]


FIELDS: Mapping[str, tuple[str, ...]] = {
    "attempt": ("n", "fence", "arguments"),
    "receipt": ("n", "fence", "outcome", "evidence"),
    "sighting": ("n", "fence", "outcome", "evidence"),
    "resolution": ("act", "decided_by", "evidence"),
}


def _row(kind: str, row: Any) -> Stored:
    found = {"kind": kind, "seq": getattr(row, "seq", 0), "at": row.at.isoformat()}
    found |= {name: getattr(row, name) for name in ("step", "direction", *FIELDS[kind])}
    if kind == "attempt":
        found["fingerprint"] = bytes(row.fingerprint).hex()
    if kind == "sighting":
        found["of"] = row.kind
    return found


def _place(row: Stored) -> tuple[Any, ...]:
    return row["seq"], row["step"], row["direction"], row["n"]


def _at(row: Stored) -> datetime:
    return datetime.fromisoformat(row["at"])


def _attempt(r: Stored) -> Entry:
    digest = bytes.fromhex(r["fingerprint"])
    way = Direction(r["direction"])
    return Attempt(r["step"], way, r["n"], r["fence"], _at(r), digest, r["arguments"])


def _receipt(r: Stored) -> Entry:
    way, outcome = Direction(r["direction"]), ReceiptOutcome(r["outcome"])
    return Receipt(r["step"], way, r["n"], outcome, r["evidence"], _at(r), r["fence"])


def _sighting(r: Stored) -> Entry:
    way = Direction(r["direction"])
    return Sighting(
        r["step"], way, r["n"], r["of"], r["outcome"], r["evidence"], _at(r), r["fence"]
    )


def _resolution(r: Stored) -> Entry:
    way = Direction(r["direction"])
    return Resolution(r["step"], way, r["act"], r["decided_by"], r["evidence"], _at(r))


_MADE = {"attempt": _attempt, "receipt": _receipt, "sighting": _sighting, "resolution": _resolution}

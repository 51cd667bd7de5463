"""What is committed, as a second reader sees it: read after every commit, and kept apart from what the engine believes.

Each look is one statement over the job rows and the journal rows that are new. Values that the system draws at random
(write ids, tokens, serial numbers) are left out.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ledger import sql

Row = dict[str, Any]
JOURNAL = ("attempt", "receipt", "checkpoint", "resolution", "sighting")
UNTOLD = ("id", "write_id", "claim_token", "acting_fence", "arguments", "input", "cost")

NEW = "SELECT '{table}', id, (to_jsonb(r) - 'arguments')::text FROM ledger_{table} r WHERE id > %({table})s"
LOOK = " UNION ALL ".join(
    [
        "SELECT 'job', 0::bigint, to_jsonb(j)::text FROM ledger_job j",
        *(NEW.format(table=table) for table in JOURNAL),
    ]
)


@dataclass(slots=True)
class Job:
    """One job and its journal, rows in the order of their tables."""

    row: Row
    attempt: list[Row] = field(default_factory=list)
    receipt: list[Row] = field(default_factory=list)
    checkpoint: list[Row] = field(default_factory=list)
    resolution: list[Row] = field(default_factory=list)
    sighting: list[Row] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=dict)  # rows there were when its fence last grew

    @property
    def id(self) -> str:
        return str(self.row["id"])

    def attempts_of(self, step: str, direction: str) -> list[Row]:
        return [r for r in self.attempt if (r["step"], r["direction"]) == (step, direction)]

    def final(self, step: str, direction: str) -> str | None:
        """The outcome that settles an operation, by the receipts alone."""
        for row in self.receipt:
            if (row["step"], row["direction"]) == (step, direction) and row["outcome"] in FINAL:
                return str(row["outcome"])
        return None

    def confirmed(self, step: str, direction: str) -> bool:
        return self.final(step, direction) == "confirmed"


FINAL = ("confirmed", "refused")


@dataclass(slots=True)
class Change:
    """What one commit changed of one job: its row before and after, and the journal rows that are new."""

    job: Job
    before: Row | None
    after: Row
    new: dict[str, list[Row]]

    def rows(self, *tables: str) -> list[Row]:
        return [row for table in tables for row in self.new.get(table, [])]

    def told(self) -> str:
        """For the chronicle: nothing that two runs of a seed would not share."""
        before = self.before or {}
        parts = [
            f"{name}={self.after[name]}"
            for name in sorted(self.after)
            if name not in UNTOLD and self.after[name] != before.get(name)
        ]
        for table in JOURNAL:
            parts += sorted(f"+{table}{_told(row)}" for row in self.new.get(table, []))
        return " ".join(parts)


class Mirror:
    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self._seen = dict.fromkeys(JOURNAL, 0)

    def look(self) -> list[Change]:
        """What has changed since the last look, job by job."""
        rows: dict[str, Row] = {}
        new: dict[str, dict[str, list[Row]]] = {}
        for table, serial, text in sorted(sql.fetch(LOOK, self._seen), key=lambda r: (r[0], r[1])):
            row = json.loads(text)
            if table == "job":
                rows[row["id"]] = row
            else:
                self._seen[table] = serial
                new.setdefault(row["job_id"], {}).setdefault(table, []).append(row)
        return [c for job in sorted(rows) if (c := self._change(rows[job], new.get(job, {})))]

    def missing(self) -> set[str]:
        """Jobs that were there once and are not any more."""
        left = {str(row[0]) for row in sql.fetch("SELECT id FROM ledger_job")}
        return set(self.jobs) - left

    def everything(self) -> dict[str, list[Row]]:
        """All journal rows as they were first seen, by table."""
        return {t: [r for job in self.jobs.values() for r in getattr(job, t)] for t in JOURNAL}

    def _change(self, row: Row, new: dict[str, list[Row]]) -> Change | None:
        job = self.jobs.get(row["id"])
        before = job.row if job else None
        if before == row and not new:
            return None
        if job is None:
            job = self.jobs[row["id"]] = Job(row)
        job.row = row
        for table, rows in new.items():
            getattr(job, table).extend(rows)
        if before is None or before["fence"] != row["fence"]:
            job.read = {table: len(getattr(job, table)) for table in JOURNAL}
        return Change(job, before, row, new)


def at(text: str | None) -> datetime | None:
    """A time out of a row."""
    return datetime.fromisoformat(text) if text else None


def _told(row: Row) -> str:
    return json.dumps(
        {k: v for k, v in row.items() if k not in (*UNTOLD, "job_id")}, sort_keys=True
    )

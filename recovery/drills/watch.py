"""How long recovery took, by the database's clock alone.

A fault is noted right before it strikes, with the jobs that are held then. A thread looks at those jobs until each is at
rest: a job whose lease was lost has recovered when its next owner has claimed it. A look comes every few
milliseconds, so a figure is at most that much too long.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import Error

from recovery.drills.place import Place

LOOK_SECONDS = 0.02
PATIENCE_SECONDS = 5.0
NOW = "SELECT ledger_now()"
HELD = "SELECT id, fence, leases_lost FROM ledger_job WHERE owner IS NOT NULL"
LOOK = """
SELECT id, fence, leases_lost, owner IS NOT NULL, finished_at IS NOT NULL OR state = 'parked', ledger_now()
FROM ledger_job WHERE id = ANY(%s::uuid[])
"""
OPEN = """
SELECT s.job_id FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s) AND j.finished_at IS NULL
"""
ENDS = "SELECT finished_at FROM ledger_job WHERE id = ANY(%s::uuid[]) AND finished_at > %s"
# A job in trouble over an operation: from the first receipt that says so to the job's end.
DOUBTS = """
SELECT extract(epoch FROM j.finished_at - min(r.at))::float8 FROM ledger_submission s
JOIN ledger_job j ON j.id = s.job_id AND j.finished_at IS NOT NULL
JOIN ledger_receipt r ON r.job_id = j.id AND r.outcome IN ('unknown', 'throttled', 'not_sent')
WHERE starts_with(s.key, %s) GROUP BY j.id, j.finished_at
"""


@dataclass(slots=True)
class Fault:
    """What struck, when, what was held then (fence and leases lost of each job), and what was still open."""

    what: str
    at: datetime
    held: dict[UUID, tuple[int, int]]
    open: list[UUID]
    claimed: dict[UUID, float] = field(default_factory=dict)
    lost: set[UUID] = field(default_factory=set)
    resting: set[UUID] = field(default_factory=set)

    def see(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """One look at the jobs that were held."""
        for job, fence, lost, is_held, is_at_rest, now in rows:
            if job not in self.held or job in self.resting:
                continue
            fence_then, lost_then = self.held[job]
            if lost > lost_then:
                self.lost.add(job)
            if job in self.lost and (is_held or is_at_rest) and fence > fence_then + 1:
                self.claimed.setdefault(job, (now - self.at).total_seconds())
            if is_at_rest or job in self.claimed:
                self.resting.add(job)

    def waiting(self) -> list[UUID]:
        return [job for job in self.held if job not in self.resting]


class Watch:
    """The faults of one drill. Use as a context."""

    def __init__(self, place: Place, prefix: str) -> None:
        self.faults: list[Fault] = []
        self._place, self._prefix = place, prefix
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS)

    def fault(self, what: str) -> Fault:
        """Note a fault that strikes now."""
        still_open = [row[0] for row in self._place.sql(OPEN, [self._prefix])]
        now = self._place.sql(NOW)[0][0]
        held = {job: (fence, lost) for job, fence, lost in self._place.sql(HELD)}
        found = Fault(what, now, held, still_open)
        self.faults.append(found)
        return found

    def claims(self, what: str = "") -> list[float]:
        """From each fault (of this name) to the next claim of each job that lost its lease by it."""
        return [
            seconds
            for fault in self.faults
            if what in ("", fault.what)
            for seconds in fault.claimed.values()
        ]

    def ends(self) -> list[float]:
        """From each fault to the end of each job that was open then."""
        return [
            (row[0] - fault.at).total_seconds()
            for fault in self.faults
            for row in self._place.sql(ENDS, [fault.open, fault.at])
        ]

    def doubts(self) -> list[float]:
        """From the first receipt that decides nothing to the end of its job."""
        return [row[0] for row in self._place.sql(DOUBTS, [self._prefix])]

    def _look(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            jobs = [job for fault in self.faults for job in fault.waiting()]
            if not jobs:
                continue
            try:
                rows = self._place.sql(LOOK, [jobs])
            except Error:
                continue  # the database is what the drill has stopped
            for fault in self.faults:
                fault.see(rows)

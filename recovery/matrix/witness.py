"""What can be seen of a case's job from beside it: our own rows, and the outside's book. It changes nothing."""

from dataclasses import dataclass, field
from typing import Any, override
from uuid import UUID

from ledger import sql
from recovery.matrix import outside

OF_A_STEP = ("settle.", "call.", "probe.", "tombstone.", "local.")
JOB = "SELECT job_id FROM ledger_submission WHERE tenant_id = %s AND key = %s"
MOVED = """
SELECT state, fence, seq, lane, direction, (SELECT count(*) FROM ledger_sighting s WHERE s.job_id = j.id)
FROM ledger_job j WHERE id = %s
"""
WAITS = """
SELECT greatest(0, extract(epoch FROM CASE state WHEN 'waiting' THEN due_at ELSE lease_until END - ledger_now()))::float
FROM ledger_job WHERE id = %s AND state IN ('waiting', 'running')
"""
IN_DOUBT = """
SELECT a.step || ':' || a.direction, bool_and(EXISTS (SELECT 1 FROM ledger_receipt r WHERE r.job_id = a.job_id
    AND r.step = a.step AND r.direction = a.direction AND r.n = a.n))
FROM ledger_attempt a WHERE a.job_id = %(job)s
    AND NOT EXISTS (SELECT 1 FROM ledger_receipt r WHERE r.job_id = a.job_id AND r.step = a.step
        AND r.direction = a.direction AND r.outcome IN ('confirmed', 'refused'))
    AND NOT EXISTS (SELECT 1 FROM ledger_receipt r WHERE r.job_id = a.job_id AND r.step = a.step
        AND r.direction = a.direction AND r.n = a.n AND r.outcome IN ('not_sent', 'throttled'))
GROUP BY 1
"""
SITUATION = """
SELECT concat_ws(' ', j.state, j.direction, (SELECT x.what FROM (
    SELECT at, 1 AS kind, id, step || ':' || direction || ' attempted' AS what FROM ledger_attempt WHERE job_id = j.id
    UNION ALL SELECT at, 0, id, step || ':' || direction || ' ' || outcome FROM ledger_receipt WHERE job_id = j.id
    UNION ALL SELECT at, 2, id, step || ':' || direction || ' ' || kind || ' ' || outcome
        FROM ledger_sighting WHERE job_id = j.id) x ORDER BY x.at DESC, x.kind DESC, x.id DESC LIMIT 1))
FROM ledger_job j WHERE id = %s
"""
ENDING = "SELECT state, parked_reason, parked_detail, direction FROM ledger_job WHERE id = %s"
BELIEVED = """
SELECT step || ':' || direction FROM ledger_receipt WHERE job_id = %(job)s AND outcome = 'confirmed'
UNION SELECT step || ':' || direction FROM ledger_resolution WHERE job_id = %(job)s AND act = 'done'
"""


@dataclass(frozen=True, slots=True)
class Reach:
    """One reach of a point in an undisturbed run. `situation`: the job's state, and the last thing in its journal."""

    point: str
    nth: int
    situation: str
    doubts: bool

    @property
    def gap(self) -> tuple[str, str]:
        """Points of a step tell its position apart; for the others the job's state, direction and doubt are all."""
        if self.point.startswith(OF_A_STEP):
            return self.point, self.situation
        return self.point, " ".join([*self.situation.split()[:2], str(self.doubts)])


@dataclass(frozen=True, slots=True)
class Ending:
    """Where a job came to rest, and what its operations did according to the outside."""

    state: str
    reason: str
    detail: str = field(compare=False)
    direction: str
    effects: outside.Effects
    believed: frozenset[str] = field(compare=False)

    @override
    def __str__(self) -> str:
        many = [f"{name} x{count}" for name, count in self.effects.items() if count != 1]
        return " ".join(filter(None, (self.state, self.reason, *many)))


class Witness:
    """Of the job that one submission key stands for."""

    def __init__(self, book: outside.Outside, tenant: UUID, key: str) -> None:
        self._book, self._name = book, [tenant, key]
        self._job: UUID | None = None

    def job(self) -> UUID | None:
        """None before its rows can be seen."""
        self._job = self._job or self._current()
        return self._job

    def moves(self) -> Any:
        """Differs whenever the job has moved, or evidence has come in."""
        return self._ask(MOVED)

    def wait(self) -> float | None:
        """Seconds until its due time or the end of its lease; None when it waits for neither."""
        found = self._ask(WAITS)
        return float(found[0]) if found else None

    def situation(self) -> str:
        found = self._ask(SITUATION)
        return str(found[0]) if found else "no job"

    def in_doubt(self) -> dict[str, bool]:
        """Operations whose outcome is not stored, and whether all of their senders are known to have returned."""
        return dict(sql.fetch(IN_DOUBT, {"job": self.job()}))

    def ending(self) -> Ending:
        job = self._current()
        if job is None:
            return Ending("removed", "", "", "", {}, frozenset())
        state, reason, detail, direction = sql.fetch(ENDING, [job])[0]
        believed = frozenset(row[0] for row in sql.fetch(BELIEVED, {"job": job}))
        return Ending(state, reason, detail, direction, self._book.effects(job), believed)

    def _current(self) -> UUID | None:
        found = sql.fetch(JOB, self._name)
        return found[0][0] if found else None

    def _ask(self, question: str) -> Any:
        rows = sql.fetch(question, [self.job()])
        return rows[0] if rows else None

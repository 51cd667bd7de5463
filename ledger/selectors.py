"""The read side: frozen views of the ledger for the API, the admin, metrics and reports. It writes nothing."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger import journal, operations, sql
from ledger.operations import Entry
from ledger.saga import Direction


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as its tenant may see it. `outcome_known` is false while an operation is in doubt: not the same as failed."""

    id: UUID
    tenant_id: UUID
    saga: str
    version: int
    state: str
    direction: Direction
    parked_reason: str
    outcome_known: bool
    created_at: datetime
    finished_at: datetime | None


JOB = """
SELECT id, tenant_id, saga, version, state, direction, parked_reason, created_at, finished_at FROM ledger_job WHERE id = %s
"""


def job(job_id: UUID) -> JobView | None:
    """One job with what is known of its outcome; None for an unknown id."""
    rows = sql.fetch(JOB, [job_id])
    if not rows:
        return None
    (id_, tenant_id, saga, version, state, direction, reason, created_at, finished_at) = rows[0]
    in_doubt = any(op.doubtful() for op in operations.fold(entries(job_id)).values())
    return JobView(
        id_,
        tenant_id,
        saga,
        version,
        state,
        Direction(direction),
        reason,
        not in_doubt,
        created_at,
        finished_at,
    )


def entries(job_id: UUID) -> list[Entry]:
    """The journal of one job."""
    return journal.read([job_id])[job_id]


def jobs_by_state() -> list[tuple[str, str, int]]:
    """(saga, state, count) of all jobs."""
    return [
        tuple(r) for r in sql.fetch("SELECT saga, state, count(*) FROM ledger_job GROUP BY 1, 2")
    ]


OLDEST = """
SELECT l.lane, greatest(0, extract(epoch FROM (SELECT ledger_now()) - least(
    (SELECT min(due_at) FROM ledger_job WHERE state = 'queued' AND lane = l.lane),
    (SELECT min(due_at) FROM ledger_job WHERE state = 'waiting' AND lane = l.lane AND due_at <= (SELECT ledger_now())))))
FROM ledger_laneclock l
"""


def oldest_runnable_seconds() -> dict[str, float]:
    """Per lane, the age of the oldest job that a worker could run now; zero for an idle lane."""
    return {lane: float(age or 0) for lane, age in sql.fetch(OLDEST)}


# The least due time and not EXISTS: a lane without any work would be looked for in the whole table.
RUNNABLE = """
SELECT l.lane FROM ledger_laneclock l
WHERE (SELECT min(due_at) FROM ledger_job WHERE state = 'queued' AND lane = l.lane) IS NOT NULL
    OR (SELECT min(due_at) FROM ledger_job WHERE state = 'waiting' AND lane = l.lane) <= (SELECT ledger_now())
"""


def runnable_lanes() -> list[str]:
    """Lanes with work that a worker could take now."""
    return [row[0] for row in sql.fetch(RUNNABLE)]

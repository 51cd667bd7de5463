"""Drive jobs in this process until nothing is due, with the real engine."""

from uuid import UUID

from django.db import connection

from ledger import engine, models, sql
from ledger.states import JOB_LANES

PASSES_MAX = 50


def drive_all() -> int:
    """Drive both lanes until a pass claims nothing; returns how many claims there were."""
    total = 0
    for _ in range(PASSES_MAX):
        claimed = sum(engine.drive(lane) for lane in JOB_LANES)
        if not claimed:
            return total
        total += claimed
    raise AssertionError(f"jobs are still claimed after {PASSES_MAX} passes")


def state(job_id: UUID) -> str:
    return models.Job.objects.get(id=job_id).state


def make_due(job_id: UUID) -> None:
    """Let a waiting job's due time pass: the row moves, no clock does."""
    sql.fetch(
        "UPDATE ledger_job SET acting_fence = fence, due_at = ledger_now() WHERE id = %s AND state = 'waiting'",
        [job_id],
    )


def expire_lease(job_id: UUID) -> None:
    """Let a running job's lease pass."""
    sql.fetch(
        "UPDATE ledger_job SET acting_fence = fence, lease_until = ledger_now() - interval '1 s'"
        " WHERE id = %s AND state = 'running'",
        [job_id],
    )


def receipts(job_id: UUID) -> list[tuple[str, str, str]]:
    """(step, direction, outcome) in journal order."""
    rows = models.Receipt.objects.filter(job_id=job_id).order_by("id")
    return [(r.step, r.direction, r.outcome) for r in rows]


def age_receipts(job_id: UUID) -> None:
    """Move a job's receipts an hour back. The journal refuses an UPDATE, so as its owner and as a replica."""
    with connection.cursor() as cursor:
        cursor.execute("SET ROLE none")
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "UPDATE ledger_receipt SET at = at - interval '1 hour' WHERE job_id = %s", [job_id]
        )
    connection.close()

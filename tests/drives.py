"""Drive jobs in this process until nothing is due, with the real engine."""

from uuid import UUID

from django.conf import settings
from django.db import connection

from ledger import calls, engine, models, sql
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


def drive_alone(lane: str) -> None:
    """As `engine.drive`, with a pool of its own: several of these in threads are several workers."""
    run = engine.Run(lane, pool=calls.Pool(settings.SLOTS))
    run.claim()
    while run.held:
        for stage in (run.renew, run.take_in, run.settle, run.run_locals, run.claim):
            stage()


def state(job_id: UUID) -> str:
    return models.Job.objects.get(id=job_id).state


def moved(job_id: UUID, change: str) -> UUID:
    """A job whose row was changed by no owner: `change` is what SET says."""
    sql.fetch(f"UPDATE ledger_job SET acting_fence = fence, {change} WHERE id = %s", [job_id])  # noqa: S608
    return job_id


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


AGE = """
SET ROLE none;
SET session_replication_role = replica;
UPDATE ledger_attempt SET at = at - interval '1 hour' WHERE job_id = '{job}';
UPDATE ledger_receipt SET at = at - interval '1 hour' WHERE job_id = '{job}';
UPDATE ledger_resolution SET at = at - interval '1 hour' WHERE job_id = '{job}';
UPDATE ledger_provider SET throttled_until = throttled_until - interval '1 hour';
UPDATE ledger_sighting SET at = at - interval '1 hour' WHERE job_id = '{job}';
UPDATE ledger_sighting SET evidence = jsonb_set(evidence, ARRAY[name],
    to_jsonb(((evidence ->> name)::timestamptz - interval '1 hour')::text))
FROM unnest(ARRAY['asked_at', 'lease_until']) AS name WHERE job_id = '{job}' AND evidence ? name;
"""


def age_journal(job_id: UUID) -> None:
    """Move a job's journal, and what evidence and providers say of times, an hour back. The journal refuses an UPDATE, so as
    its owner and as a replica.
    """
    with connection.cursor() as cursor:
        cursor.execute(AGE.format(job=job_id))
    connection.close()

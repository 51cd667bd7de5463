"""Someone with the worker's own rights in the database writes under an old fence, without one, or under another's.

Shows that the guard is the database's and not the code's: straight SQL as the worker's role is refused, or changes no row.
The control is the same statement under the current fence, which is accepted.
"""

from collections.abc import Mapping
from typing import Any

from django.db import Error

from recovery.drills import place as names
from recovery.drills.run import Drill, Run

ROLE = "amends_worker"
TARGETS_SMALL, TARGETS_LARGE = 2, 20
HELD = """
SELECT j.id, j.fence, j.seq FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s) AND j.owner IS NOT NULL AND NOT j.id = ANY(%s::uuid[]) LIMIT 1
"""
STALE: Mapping[str, str] = {
    "an update that states no fence": """UPDATE ledger_job SET state = 'confirmed', finished_at = ledger_now(), owner = NULL,
        lease_until = NULL
        WHERE id = %(job)s RETURNING id""",
    "an update under an old fence": """UPDATE ledger_job SET acting_fence = %(old)s,
        state = 'confirmed', finished_at = ledger_now(), owner = NULL,
        lease_until = NULL
        WHERE id = %(job)s RETURNING id""",
    "an update under a fence of the future": """UPDATE ledger_job SET acting_fence = %(next)s,
        state = 'confirmed', finished_at = ledger_now(), owner = NULL,
        lease_until = NULL
        WHERE id = %(job)s RETURNING id""",
    "a guarded write of an owner that was": """UPDATE ledger_job SET acting_fence = %(old)s,
        state = 'confirmed', finished_at = ledger_now(), owner = NULL,
        lease_until = NULL
        WHERE id = %(job)s AND fence = %(old)s RETURNING id""",
    "a lease renewed for another": """UPDATE ledger_job SET acting_fence = %(old)s,
        lease_until = ledger_now() + interval '1 hour' WHERE id = %(job)s RETURNING id""",
    "a receipt under an old fence": """INSERT INTO ledger_receipt (job_id, seq, fence, step, direction, n, outcome, evidence)
        VALUES (%(job)s, %(seq)s, %(old)s, 'capture_payment', 'forward', 9, 'confirmed', '{}') RETURNING id""",
    "an attempt under an old fence": """INSERT INTO ledger_attempt (job_id, seq, fence, step, direction, n, fingerprint)
        VALUES (%(job)s, %(seq)s, %(old)s, 'capture_payment', 'forward', 9, '\\x00') RETURNING id""",
    "a checkpoint under an old fence": """INSERT INTO ledger_checkpoint (job_id, seq, fence, data)
        VALUES (%(job)s, %(seq)s, %(old)s, '{}') RETURNING id""",
    "a journal that is emptied": "DELETE FROM ledger_attempt WHERE job_id = %(job)s RETURNING id",
    "a receipt that is changed": """UPDATE ledger_receipt SET outcome = 'refused' WHERE job_id = %(job)s
        RETURNING id""",
}  # fmt: skip
CURRENT = "UPDATE ledger_job SET acting_fence = fence WHERE id = %s AND fence = %s RETURNING id"


def play(run: Run) -> None:
    done: list[Any] = []
    for _ in range(TARGETS_LARGE if run.is_large else TARGETS_SMALL):
        run.wait("a job in a worker's hands", lambda: bool(_held(run, done)) or run.load.is_over())
        held = _held(run, done)
        if held:
            done.append(held[0][0])
            run.watch.fault("stale writes")
            _write_for(run, *held[0])
    run.note(f"straight SQL as {ROLE}: {', '.join(STALE)}")


def _held(run: Run, done: list[Any]) -> names.Rows:
    return run.place.sql(HELD, [run.load.prefix, done])


def _write_for(run: Run, job: Any, fence: int, seq: int) -> None:
    params = {"job": job, "old": fence - 1, "next": fence + 1, "seq": seq}
    for what, statement in STALE.items():
        try:
            rows = run.place.sql(statement, params, role=ROLE)
        except Error:
            rows = []
        run.seen["stale_refused"] += not rows
        run.expect(holds=not rows, otherwise=f"job {job}: accepted {what}")
    run.seen["current_accepted"] += len(run.place.sql(CURRENT, [job, fence], role=ROLE))


DRILL = Drill(
    name="stale-token",
    done="Writes under an old fence, a foreign one or none, straight as the worker's database role, while jobs run.",
    faults=play,
    must_see=("stale_refused", "current_accepted"),
    recovers="end",
)

"""Invariants of submissions, jobs, leases and the order of a journal."""

from ledger import guards
from recovery.invariants.named import FENCED, Invariant

GUARDS = [f"ledger_{table}_fence" for table in guards.JOURNAL]
APPEND_ONLY = [
    f"ledger_{table}_{what}" for table in guards.APPEND_ONLY for what in ("update", "delete")
]


def _missing(triggers: list[str]) -> str:
    names = ", ".join(f"('{name}')" for name in triggers)
    return f"""
SELECT t.name FROM (VALUES {names}) AS t(name)
WHERE NOT EXISTS (SELECT 1 FROM pg_trigger g WHERE g.tgname = t.name AND g.tgenabled = 'O')"""


JOBS = (
    Invariant("S1", "Every job has its submission, the only one of its key.", """
SELECT j.id FROM ledger_job j WHERE NOT EXISTS (SELECT 1 FROM ledger_submission s WHERE s.job_id = j.id)
UNION ALL
SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY tenant_id, key ORDER BY id) AS n FROM ledger_submission) s
WHERE n > 1"""),
    Invariant("S8", "A key has lost its job only to retention, which empties the request and keeps the key.", """
SELECT id FROM ledger_submission WHERE (job_id IS NULL) <> (request = '{}') AND job_id IS NULL"""),
    Invariant("T1", "A submission and its job are of one tenant.", """
SELECT j.id FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id WHERE j.tenant_id <> s.tenant_id"""),
    Invariant("T2", "Every act of a person has its line in the staff log, of the same moment.", """
SELECT r.job_id FROM ledger_resolution r WHERE NOT EXISTS (SELECT 1 FROM django_admin_log l
    WHERE l.object_id = r.job_id::text AND l.action_time = r.at)"""),
    Invariant("D1", "No row of a journal has outlived its job.", f"""
SELECT job_id FROM (
    {FENCED} UNION ALL SELECT job_id, fence, 0, at FROM ledger_sighting) f
WHERE NOT EXISTS (SELECT 1 FROM ledger_job j WHERE j.id = f.job_id)"""),
    Invariant("L1", "Along its seq, the fence of a job's journal never shrinks.", f"""
SELECT job_id FROM (SELECT job_id, fence, lag(fence) OVER (PARTITION BY job_id ORDER BY seq, fence) AS before
    FROM ({FENCED}) f) g WHERE fence < before"""),
    Invariant("L2", "No row of a journal carries a later fence or seq than its job.", f"""
SELECT f.job_id FROM ({FENCED}) f JOIN ledger_job j ON j.id = f.job_id WHERE f.fence > j.fence OR f.seq > j.seq"""),
    Invariant("L4", "Once a job had a later owner, an earlier one wrote nothing.", f"""
SELECT job_id FROM (SELECT job_id, at, min(at) OVER (PARTITION BY job_id ORDER BY fence
    RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS later FROM ({FENCED}) f) g WHERE at > later"""),
    Invariant("L5", "No lease lasts longer than one term from now: leases are of the database's clock.", """
SELECT id FROM ledger_job WHERE owner IS NOT NULL AND lease_until > ledger_now() + make_interval(secs => %(lease)s)"""),
    Invariant("L7", "A job is under a lease exactly while it is running.", """
SELECT id FROM ledger_job WHERE (state = 'running') <> (owner IS NOT NULL AND lease_until IS NOT NULL)"""),
    Invariant("C1", "The guards of states, fences and journals are installed and enabled.",
        _missing(["ledger_job_guard", *GUARDS])),
    Invariant("R6", "What keeps the journal append-only is installed and enabled, and no operation is settled twice.",
        f"""{_missing([*APPEND_ONLY, "ledger_job_delete", "ledger_job_truncate"])}
UNION ALL SELECT job_id::text FROM ledger_receipt WHERE outcome IN ('confirmed', 'refused')
GROUP BY job_id, step, direction HAVING count(*) > 1"""),
    Invariant("C2", "A job's seqs are 1 to n without gaps, and n is the job's own.", f"""
SELECT j.id FROM ledger_job j LEFT JOIN (SELECT job_id, count(DISTINCT seq) AS seqs, max(seq) AS last FROM ({FENCED}) f
    GROUP BY job_id) n ON n.job_id = j.id
WHERE j.seq <> coalesce(n.seqs, 0) OR j.seq <> coalesce(n.last, 0)"""),
    Invariant("C3", "What a checkpoint says is settled has its receipt, or a person's ruling, no later than that.", """
SELECT c.job_id FROM ledger_checkpoint c
CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(c.data -> 'settled') WHEN 'object' THEN c.data -> 'settled' END)
    AS s(name, said)
CROSS JOIN LATERAL (SELECT left(s.name, -length(split_part(s.name, ':', -1)) - 1) AS step, split_part(s.name, ':', -1)
    AS direction, CASE jsonb_typeof(s.said) WHEN 'object' THEN s.said ->> 'outcome' ELSE s.said #>> '{}' END AS outcome) o
WHERE NOT EXISTS (SELECT 1 FROM ledger_receipt r WHERE r.job_id = c.job_id AND r.step = o.step
        AND r.direction = o.direction AND r.outcome = o.outcome AND r.seq <= c.seq)
    AND NOT EXISTS (SELECT 1 FROM ledger_resolution p WHERE p.job_id = c.job_id AND p.step = o.step
        AND p.direction = o.direction AND p.seq <= c.seq
        AND p.act = CASE o.outcome WHEN 'confirmed' THEN 'done' ELSE 'not-done' END)"""),
    Invariant("C5", "Nothing is orphaned: what has not ended is parked, leased, or waits in a lane that is driven, ranked "
        "or for no longer than the longest wait that is declared.", """
SELECT id FROM ledger_job WHERE state IN ('waiting', 'queued', 'running') AND lane <> ALL(%(lanes)s::text[])
UNION ALL SELECT id FROM ledger_job WHERE state = 'queued' AND rank IS NULL
UNION ALL SELECT id FROM ledger_job WHERE state = 'waiting' AND due_at > ledger_now() + make_interval(secs => %(waits)s)"""),
    Invariant("O8", "An ended job's last row is the checkpoint of its end.", """
SELECT j.id FROM ledger_job j WHERE j.finished_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ledger_checkpoint c
    WHERE c.job_id = j.id AND c.seq = j.seq AND c.data ->> 'state' = j.state)"""),
    Invariant("O11", "A parked job says why: a reason and what it is about.", """
SELECT id FROM ledger_job WHERE state = 'parked' AND (parked_reason = '' OR parked_detail = '' OR parked_at IS NULL)"""),
)  # fmt: skip

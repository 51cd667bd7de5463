"""The guarded write: receipts, checkpoints, next attempts and the job's move, of many jobs, in one statement.

The invariant it keeps: no row of the journal and no state is written by anyone but the job's owner. Each write states
job, fence, claim, seq and the expected state; a row that does not come back was either written by this very write before
(the reply to its commit was lost: our write id is on it) or belongs to somebody else now, and nothing of it was written.

What a write carries is stored in two parts: receipts always; the next attempt, the checkpoint and the move only if the
direction the job has in the database is still the one that the plan was made for (a cancel may have turned it).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID, uuid4

from ledger import checkpoints, sql
from ledger.operations import Attempt, Entry, Receipt, Resolution, Sighting
from ledger.outcomes import ReceiptOutcome
from ledger.saga import Direction
from ledger.states import JobState


@dataclass(frozen=True, slots=True)
class NewAttempt:
    step: str
    direction: Direction
    n: int
    arguments: Mapping[str, Any]
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class NewReceipt:
    step: str
    direction: Direction
    n: int
    outcome: ReceiptOutcome
    evidence: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class Write:
    """All that one turn writes for one job. `delay_seconds` counts from the database's now."""

    job_id: UUID
    fence: int
    token: UUID
    seq: int
    knows: Direction
    direction: Direction
    lane: str
    state: JobState = JobState.RUNNING
    pivot_sent: bool = False
    delay_seconds: float = 0.0
    parked_reason: str = ""
    parked_detail: str = ""
    heard: int = 0
    receipts: list[NewReceipt] = field(default_factory=list)
    attempts: list[NewAttempt] = field(default_factory=list)
    checkpoint: Mapping[str, Any] | None = None
    checkpoint_format: int = checkpoints.CURRENT

    def take_over(self, other: "Write") -> None:
        """Become another write of the same job: the one that could be stored in place of this."""
        assert self.job_id == other.job_id, "a write is of one job"
        for name in (
            "state",
            "direction",
            "lane",
            "receipts",
            "attempts",
            "checkpoint",
            "checkpoint_format",
            "parked_reason",
            "heard",
        ):
            setattr(self, name, getattr(other, name))

    def is_empty(self) -> bool:
        moves = self.state is not JobState.RUNNING or self.direction is not self.knows
        return not (self.receipts or self.attempts or self.checkpoint or moves)


@dataclass(frozen=True, slots=True)
class Written:
    """`stale`: nothing was written, the job has another owner. `fits`: the move and the attempt were stored too."""

    result: Literal["applied", "repeated", "stale"]
    fits: bool = False
    direction: Direction = Direction.FORWARD
    seq: int = 0
    at: datetime | None = None
    fence: int | None = None


# Rows travel as one JSON text per table: escaping arrays element by element cost more than the statement itself. Jobs are
# locked one by one in the order of their ids, by a LATERAL that can only use the primary key: with a plain join the
# planner takes "state = running" for rare and reads the whole table.
SETTLE = """
WITH locked AS MATERIALIZED (
    SELECT g.* FROM (SELECT * FROM json_to_recordset(%(jobs)s::json) AS g(id uuid, fence bigint, token uuid, seq bigint,
        knows text, state text, direction text, lane text, delay float8, pivot bool, reason text, detail text, heard int,
        has_receipts bool, has_more bool, format int) ORDER BY id) g
    CROSS JOIN LATERAL (SELECT FROM ledger_job j
        WHERE j.id = g.id AND j.fence = g.fence AND j.claim_token = g.token AND j.seq = g.seq AND j.state = 'running'
        FOR NO KEY UPDATE) j),
moved AS (
    UPDATE ledger_job j SET
        acting_fence = g.fence, write_id = %(write_id)s,
        seq = j.seq + (g.has_receipts OR (g.has_more AND j.direction = g.knows))::int,
        checkpoint_format = CASE WHEN j.direction = g.knows THEN coalesce(g.format, j.checkpoint_format)
            ELSE j.checkpoint_format END,
        state = CASE WHEN j.direction = g.knows THEN g.state ELSE j.state END,
        lane = CASE WHEN j.direction = g.knows THEN g.lane ELSE j.lane END,
        pivot_sent = CASE WHEN j.direction = g.knows THEN g.pivot ELSE j.pivot_sent END,
        direction = CASE WHEN j.direction = g.knows THEN g.direction ELSE j.direction END,
        owner = CASE WHEN j.direction = g.knows AND g.state <> 'running' THEN NULL ELSE j.owner END,
        lease_until = CASE WHEN j.direction = g.knows AND g.state <> 'running' THEN NULL ELSE j.lease_until END,
        due_at = CASE WHEN j.direction = g.knows AND g.state = 'waiting'
            THEN ledger_now() + make_interval(secs => g.delay) ELSE j.due_at END,
        parked_reason = CASE WHEN j.direction = g.knows THEN g.reason ELSE '' END,
        parked_detail = CASE WHEN j.direction = g.knows THEN g.detail ELSE '' END,
        parked_at = CASE WHEN j.direction = g.knows AND g.state = 'parked' THEN ledger_now() END,
        heard = CASE WHEN j.direction = g.knows AND g.state = 'parked' THEN g.heard ELSE j.heard END,
        -- A receipt is proof that its process outlived what it ran.
        losses = CASE WHEN g.has_receipts THEN 0 ELSE j.losses END,
        strikes = CASE WHEN g.has_receipts THEN 0 ELSE j.strikes END,
        suspect = j.suspect AND NOT g.has_receipts,
        finished_at = CASE WHEN j.direction = g.knows AND g.state IN ('confirmed', 'refused', 'compensated')
            THEN ledger_now() END
    FROM locked g WHERE j.id = g.id AND j.fence = g.fence AND j.seq = g.seq
    RETURNING j.id, j.fence, j.seq, j.direction, old.direction = g.knows AS fits),
r AS (
    INSERT INTO ledger_receipt (job_id, seq, fence, step, direction, n, outcome, evidence, at)
    SELECT m.id, m.seq, m.fence, x.step, x.direction, x.n, x.outcome, x.evidence, ledger_now()
    FROM json_to_recordset(%(receipts)s::json)
        AS x(job uuid, step text, direction text, n int, outcome text, evidence jsonb)
    JOIN moved m ON m.id = x.job),
c AS (
    INSERT INTO ledger_checkpoint (job_id, seq, fence, format, data, at)
    SELECT m.id, m.seq, m.fence, x.format, x.data, ledger_now()
    FROM json_to_recordset(%(checkpoints)s::json) AS x(job uuid, format int, data jsonb)
    JOIN moved m ON m.id = x.job WHERE m.fits),
a AS (
    INSERT INTO ledger_attempt (job_id, seq, fence, step, direction, n, arguments, fingerprint, at)
    SELECT m.id, m.seq, m.fence, x.step, x.direction, x.n, x.arguments, decode(x.fingerprint, 'hex'), ledger_now()
    FROM json_to_recordset(%(attempts)s::json)
        AS x(job uuid, step text, direction text, n int, arguments jsonb, fingerprint text)
    JOIN moved m ON m.id = x.job WHERE m.fits)
SELECT id, fits, direction, seq, ledger_now() FROM moved
"""

READ_BACK = """
SELECT j.id, j.fence, j.seq, j.write_id, j.state, j.direction, a.step, a.direction, a.n, ledger_now()
FROM ledger_job j LEFT JOIN ledger_attempt a ON a.job_id = j.id AND a.seq = j.seq
WHERE j.id = ANY(%s::uuid[]) ORDER BY a.id
"""


def settle(writes: Sequence[Write], write_id: UUID | None = None) -> dict[UUID, Written]:
    """Store all writes in one commit, each under its own guard. Repeating it with the same `write_id` is harmless.

    Joins the caller's transaction, or commits alone. Raises what the database raises; then nothing is stored, or the
    reply was lost, and the same call again tells which.
    """
    if not writes:
        return {}
    write_id = write_id or uuid4()
    rows = sql.fetch(SETTLE, _parameters(writes, write_id))
    written = {
        row[0]: Written("applied", row[1], Direction(row[2]), row[3], row[4]) for row in rows
    }
    missing = [w for w in writes if w.job_id not in written]
    return written | (read_back(missing, write_id) if missing else {})


def read_back(writes: Sequence[Write], write_id: UUID) -> dict[UUID, Written]:
    """Without writing, tell a write that went through with its reply lost from one that came too late."""
    rows: dict[UUID, list[Any]] = {}
    for row in sql.fetch(READ_BACK, [[w.job_id for w in writes]]):
        rows.setdefault(row[0], []).append(row)
    found: dict[UUID, Written] = {}
    for write in writes:
        stored = rows.get(write.job_id)
        if stored is None or stored[0][1] != write.fence or stored[0][3] != write_id:
            found[write.job_id] = Written("stale", fence=stored[0][1] if stored else None)
            continue
        _, _, seq, _, state, direction, *_, at = stored[0]
        attempts = {(row[6], row[7], row[8]) for row in stored}
        wanted = {(a.step, a.direction, a.n) for a in write.attempts}
        fits = state == write.state and wanted <= attempts
        found[write.job_id] = Written("repeated", fits, Direction(direction), seq, at)
    return found


def _parameters(writes: Sequence[Write], write_id: UUID) -> dict[str, Any]:
    return {
        "write_id": write_id,
        "jobs": as_text([_job(w) for w in writes]),
        "receipts": as_text([_receipt(w.job_id, r) for w in writes for r in w.receipts]),
        "checkpoints": as_text(
            [
                {"job": str(w.job_id), "format": w.checkpoint_format, "data": w.checkpoint}
                for w in writes
                if w.checkpoint is not None
            ]
        ),
        "attempts": as_text([_attempt(w.job_id, a) for w in writes for a in w.attempts]),
    }


def _job(write: Write) -> dict[str, Any]:
    return {
        "id": str(write.job_id),
        "fence": write.fence,
        "token": str(write.token),
        "seq": write.seq,
        "knows": write.knows,
        "state": write.state,
        "direction": write.direction,
        "lane": write.lane,
        "delay": write.delay_seconds,
        "pivot": write.pivot_sent,
        "reason": write.parked_reason,
        "detail": write.parked_detail,
        "heard": write.heard,
        "has_receipts": bool(write.receipts),
        "has_more": bool(write.attempts) or write.checkpoint is not None,
        "format": None if write.checkpoint is None else write.checkpoint_format,
    }


def _receipt(job_id: UUID, receipt: NewReceipt) -> dict[str, Any]:
    return {
        "job": str(job_id),
        "step": receipt.step,
        "direction": receipt.direction,
        "n": receipt.n,
        "outcome": receipt.outcome,
        "evidence": receipt.evidence,
    }


def _attempt(job_id: UUID, attempt: NewAttempt) -> dict[str, Any]:
    return {
        "job": str(job_id),
        "step": attempt.step,
        "direction": attempt.direction,
        "n": attempt.n,
        "arguments": attempt.arguments if attempt.n == 1 else None,
        "fingerprint": attempt.fingerprint.hex(),
    }


def read(job_ids: Sequence[UUID]) -> dict[UUID, list[Entry]]:
    """The journals of these jobs, as the planner reads them."""
    journals: dict[UUID, list[Entry]] = {job_id: [] for job_id in job_ids}
    ids = [list(job_ids)]
    for job, step, direction, n, fence, at, digest, arguments in sql.fetch(
        "SELECT job_id, step, direction, n, fence, at, fingerprint, arguments FROM ledger_attempt"
        " WHERE job_id = ANY(%s::uuid[]) ORDER BY id",
        ids,
    ):
        journals[job].append(
            Attempt(step, Direction(direction), n, fence, at, bytes(digest), as_json(arguments))
        )
    for job, step, direction, n, outcome, evidence, at, fence in sql.fetch(
        "SELECT job_id, step, direction, n, outcome, evidence, at, fence FROM ledger_receipt"
        " WHERE job_id = ANY(%s::uuid[]) ORDER BY id",
        ids,
    ):
        found = as_json(evidence) or {}
        journals[job].append(
            Receipt(step, Direction(direction), n, ReceiptOutcome(outcome), found, at, fence)
        )
    for job, step, direction, n, kind, outcome, evidence, at, fence in sql.fetch(
        "SELECT job_id, step, direction, n, kind, outcome, evidence, at, fence FROM ledger_sighting"
        " WHERE job_id = ANY(%s::uuid[]) ORDER BY id",
        ids,
    ):
        found = as_json(evidence) or {}
        journals[job].append(
            Sighting(step, Direction(direction), n, kind, outcome, found, at, fence)
        )
    for job, step, direction, act, by, evidence, at in sql.fetch(
        "SELECT job_id, step, direction, act, decided_by, evidence, at FROM ledger_resolution"
        " WHERE job_id = ANY(%s::uuid[]) ORDER BY id",
        ids,
    ):
        journals[job].append(
            Resolution(step, Direction(direction), act, by, as_json(evidence) or {}, at)
        )
    return journals


def as_text(value: Any) -> str:
    """Compact JSON for the database."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=dict)


def as_json(stored: Any) -> Any:
    """Django's connection hands jsonb out as text (its JSONField decodes); raw SQL decodes here."""
    return json.loads(stored) if isinstance(stored, str | bytes) else stored

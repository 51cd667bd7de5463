"""Sightings: unfenced, append-only evidence from whoever has no authority over the job.

A late answer of an abandoned call, a probe's reply, the death of a sender. A sighting changes no state by itself; the
owner judges it when it plans. That is why it may be written without a fence, and why it always may be written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from ledger import journal, sql
from ledger.saga import Direction


@dataclass(frozen=True, slots=True)
class NewSighting:
    job_id: UUID
    step: str
    direction: Direction
    n: int
    kind: str
    outcome: str
    evidence: dict[str, Any]
    fence: int | None = None


INSERT = """
INSERT INTO ledger_sighting (job_id, step, direction, n, kind, outcome, evidence, fence, at)
SELECT x.id, x.step, x.direction, x.n, x.kind, x.outcome, x.evidence::jsonb, x.fence, ledger_now()
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::int[], %s::text[], %s::text[], %s::text[], %s::bigint[])
    AS x(id, step, direction, n, kind, outcome, evidence, fence)
JOIN ledger_job j ON j.id = x.id RETURNING ledger_sighting.at
"""


def record(sightings: Sequence[NewSighting]) -> datetime | None:
    """Store them all, of jobs that still exist; when, by the database's clock."""
    if not sightings:
        return None
    stored = sql.fetch(
        INSERT,
        [
            [s.job_id for s in sightings],
            [s.step for s in sightings],
            [s.direction.value for s in sightings],
            [s.n for s in sightings],
            [s.kind for s in sightings],
            [s.outcome for s in sightings],
            [journal.as_text(s.evidence) for s in sightings],
            [s.fence for s in sightings],
        ],
    )
    return max((row[0] for row in stored), default=None)

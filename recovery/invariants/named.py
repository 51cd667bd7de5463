"""An invariant: its id in the project's list, one sentence that says what holds, and the query for what breaks it.

A query returns the ids of what breaks it in one column, and no row where all is well. Its parameters are `lease`, `waits`
(seconds), `lanes`, and the steps of the sagas that this build knows: `sagas`, `versions`, `steps`, `places`, `pivots`,
`learns`, in parallel arrays.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from ledger import operations, saga
from ledger.saga import Effect
from ledger.states import JOB_LANES


@dataclass(frozen=True, slots=True)
class Invariant:
    id: str
    statement: str
    query: str


# Every step that this build knows, in its place.
STEPS = """
SELECT * FROM unnest(%(sagas)s::text[], %(versions)s::int[], %(steps)s::text[], %(places)s::int[], %(pivots)s::bool[],
    %(learns)s::bool[]) AS s(saga, version, step, place, pivot, learns)"""


def final_of(job: str, step: str, direction: str) -> str:
    """What is final of an operation: a person's last ruling, or else its receipt. One look by the job's own indexes, so
    that a query grows with what it looks at.
    """
    key = f"job_id = {job} AND step = {step} AND direction = '{direction}'"
    return f"""(SELECT e.outcome FROM (
    SELECT CASE act WHEN 'done' THEN 'confirmed' ELSE 'refused' END AS outcome, 0 AS turn, -id AS place
    FROM ledger_resolution WHERE {key} AND act IN ('done', 'not-done')
    UNION ALL SELECT outcome, 1, id FROM ledger_receipt WHERE {key} AND outcome IN ('confirmed', 'refused')) e
    ORDER BY turn, place LIMIT 1)"""


def done_of(job: str, direction: str) -> str:
    """The steps of which this direction is confirmed."""
    key = f"job_id = {job} AND direction = '{direction}'"
    return f"""(SELECT k.step FROM (SELECT step FROM ledger_receipt WHERE {key} AND outcome = 'confirmed'
    UNION SELECT step FROM ledger_resolution WHERE {key} AND act = 'done') k
    WHERE {final_of(job, "k.step", direction)} = 'confirmed')"""


# Rows that carry a fence and a seq.
FENCED = " UNION ALL ".join(
    f"SELECT job_id, fence, seq, at FROM ledger_{table}"
    for table in ("attempt", "receipt", "checkpoint", "resolution")
)


def parameters(known: Iterable[saga.Saga] | None = None) -> dict[str, Any]:
    """Those that a query may name; `known`: of these sagas, and not of those that this build has registered."""
    definitions = list(saga.registered() if known is None else known)
    steps = [
        (definition, place, step)
        for definition in definitions
        for place, step in enumerate(definition.steps)
    ]
    return {
        "lease": settings.LEASE_SECONDS,
        "waits": operations.THROTTLE_MAX.total_seconds() + max(_waits(definitions)),
        "lanes": [lane.value for lane in JOB_LANES],
        "sagas": [definition.name for definition, _, _ in steps],
        "versions": [definition.version for definition, _, _ in steps],
        "steps": [step.name for _, _, step in steps],
        "places": [place for _, place, _ in steps],
        "pivots": [step.pivot for _, _, step in steps],
        "learns": [
            isinstance(step.effect, Effect) and step.effect.resend_to_learn for _, _, step in steps
        ],
    }


def _waits(definitions: Iterable[saga.Saga]) -> Iterator[float]:
    """How long jobs may wait by what is declared: after a failure, and until a late probe proves something."""
    yield settings.BACKOFF_SECONDS_MAX
    for definition in definitions:
        for step in definition.steps:
            for direction in saga.Direction:
                if isinstance(effect := step.effect_of(direction), Effect):
                    late = effect.request_lifetime + effect.probe_lag
                    yield late.total_seconds() + settings.LEASE_SECONDS

"""The providers' own books against our receipts, through the probes that reconciliation uses.

R1, R5 and R12 in one: what is confirmed here has landed there, once, with the same money and under the same reference; what
is refused here has not. The providers belong to other apps; a saga's effects name the probe of each operation, and a probe
itself compares amount, currency and subject. Nothing is written, and a provider that does not answer decides nothing.
"""

from collections import Counter
from datetime import datetime
from typing import Any

from ledger import crashpoints, journal, outcomes, saga, sql
from ledger.saga import Call, Direction, Effect
from recovery.invariants.check import IDS_MAX, Finding

OPERATIONS_MAX = 200
STATEMENT = (
    "R1, R5, R12: what is confirmed here has landed at the provider, with the same money and reference; what is refused here"
    " has not."
)

SETTLED = """
SELECT r.job_id, t.name, j.saga, j.version, r.step, r.direction, r.n, r.outcome, r.evidence ->> 'ref', a.arguments
FROM ledger_receipt r JOIN ledger_job j ON j.id = r.job_id JOIN ledger_tenant t ON t.id = j.tenant_id
JOIN ledger_attempt a ON (a.job_id, a.step, a.direction, a.n) = (r.job_id, r.step, r.direction, 1)
JOIN unnest(%(sagas)s::text[], %(versions)s::int[], %(steps)s::text[], %(directions)s::text[])
    AS s(saga, version, step, direction)
    ON (s.saga, s.version, s.step, s.direction) = (j.saga, j.version, r.step, r.direction)
WHERE r.outcome IN ('confirmed', 'refused') AND (%(since)s::timestamptz IS NULL OR r.at >= %(since)s)
    AND NOT EXISTS (SELECT 1 FROM ledger_resolution p WHERE (p.job_id, p.step, p.direction) = (r.job_id, r.step, r.direction)
        AND p.act IN ('done', 'not-done'))
    AND (j.state <> 'parked' OR j.parked_reason <> 'contradiction')
ORDER BY r.id DESC LIMIT %(limit)s
"""


def compare(limit: int = OPERATIONS_MAX, since: datetime | None = None) -> Finding:
    """Ask about at most so many settled operations that can be asked about, newest first."""
    probes = _probes()
    rows = sql.fetch(SETTLED, _columns(probes) | {"since": since, "limit": limit})
    wrong: list[str] = []
    verdicts: Counter[str] = Counter()
    for row in rows:
        operation_id, verdict = _compare(row, probes)
        verdicts[verdict] += 1
        if verdict == "differs":
            wrong.append(operation_id)
    is_undecided = bool(verdicts["silent"])
    statement = f"{STATEMENT} Asked about {len(rows)}, {verdicts['silent']} without an answer."
    return Finding("books", statement, len(wrong), wrong[:IDS_MAX], is_undecided)


Probes = dict[tuple[str, int, str, str], Effect]


def _probes() -> Probes:
    found: Probes = {}
    for definition in saga.registered():
        for step in definition.steps:
            for direction in Direction:
                effect = step.effect_of(direction)
                if isinstance(effect, Effect) and effect.probe is not None:
                    found[(*definition.key, step.name, direction.value)] = effect
    return found


def _columns(probes: Probes) -> dict[str, Any]:
    names = ("sagas", "versions", "steps", "directions")
    columns = zip(*probes, strict=True) if probes else [()] * len(names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _compare(row: Any, probes: Probes) -> tuple[str, str]:
    """(operation id, `agrees`, `differs` or `silent`)."""
    job, tenant, name, version, step, direction, n, outcome, ref, arguments = row
    effect = probes[name, version, step, direction]
    operation_id = saga.operation_id(job, step, Direction(direction))
    asked = journal.as_json(arguments) or {}
    call = Call(operation_id, job, tenant, n, asked, effect.call_seconds)
    match _ask(effect, call):
        case outcomes.Confirmed(ref=seen):
            is_same = outcome == "confirmed" and seen == (ref or "")
            return operation_id, "agrees" if is_same else "differs"
        case outcomes.NotLanded() | outcomes.Refused():
            return operation_id, "agrees" if outcome == "refused" else "differs"
        case outcomes.Unknown(reason=reason) if reason.startswith("other_"):
            return (
                operation_id,
                "differs",
            )  # it answers of other money, another subject or another operation
        case _:
            return operation_id, "silent"


def _ask(effect: Effect, call: Call) -> object:
    assert effect.probe is not None, "only what can be asked about is chosen"
    crashpoints.reach("probe.before")
    try:
        seen: object = effect.probe(call)
    except Exception as error:  # noqa: BLE001  whatever a handler raises is an outcome
        seen = error
    crashpoints.reach("probe.after")
    return seen

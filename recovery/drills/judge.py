"""The judgement of a drill, once all is healed and at rest: the provider's books, the ledger, and what clients were told.

Kept here: a violation names the job, the operation or the key it is about. `judge` is pure: a test plants each kind of wrong
and sees it named. `collect` reads the three witnesses; `in_database` asks the ledger's own invariants.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger.states import ENDED, JobState
from recovery import books
from recovery.drills.load import Journal
from recovery.drills.place import Place
from recovery.invariants import check

TOO_MANY = 429
JOBS = """
SELECT s.key, j.id, j.state, j.input->>'subject', (j.input->>'amount_minor')::bigint, j.input->>'currency',
    j.parked_reason FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s) AND j.input ? 'amount_minor' ORDER BY s.created_at
"""
# The last row of an operation counts: what a person has ruled, if anybody has, and the latest ruling of several.
RECEIPTS = """
SELECT e.job_id::text || ':' || e.step || ':' || e.direction, e.step, e.direction, e.outcome,
    (e.evidence->'data'->>'amount_minor')::bigint, e.evidence->'data'->>'currency'
FROM unnest(%(jobs)s::uuid[]) AS j(id) CROSS JOIN LATERAL (
    SELECT job_id, step, direction, outcome, evidence, 0 AS turn, id AS place FROM ledger_receipt
    WHERE job_id = j.id AND outcome IN ('confirmed', 'refused')
    UNION ALL SELECT job_id, step, direction, CASE act WHEN 'done' THEN 'confirmed' ELSE 'refused' END, evidence, 1, id
    FROM ledger_resolution WHERE job_id = j.id AND act IN ('done', 'not-done')
) e ORDER BY e.turn, e.place
"""


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the drill as the ledger has it; `booking` is whom the provider knows it by."""

    key: str
    id: UUID
    state: str
    booking: str
    amount_minor: int
    currency: str
    reason: str = ""


@dataclass(slots=True)
class Witnesses:
    """The three of them, about the bookings of one drill."""

    journal: Journal
    jobs: Sequence[Job]
    receipts: Sequence[books.Receipt]
    effects: Sequence[books.Effect]


def collect(
    place: Place, journal: Journal, prefix: str, entries: Iterable[Mapping[str, Any]]
) -> Witnesses:
    """`entries` are the effects in the provider's books, in its order."""
    jobs = [Job(*row) for row in place.sql(JOBS, [prefix])]
    receipts = [
        books.Receipt(operation, books.KINDS[step, direction], outcome, amount, currency)
        for operation, step, direction, outcome, amount, currency in place.sql(
            RECEIPTS, {"jobs": [job.id for job in jobs]}
        )
        if (step, direction) in books.KINDS
    ]
    ours = {job.booking for job in jobs} | {str(job.id) for job in jobs}
    effects = [
        effect_of(e)
        for e in entries
        if e["subject"] in ours or e["operation_id"].partition(":")[0] in ours
    ]
    return Witnesses(journal, jobs, receipts, effects)


def effect_of(entry: Mapping[str, Any]) -> books.Effect:
    """An entry of the provider's books."""
    named = ("operation_id", "kind", "subject", "amount_minor", "currency")
    return books.Effect(*(entry[name] for name in named))


def judge(found: Witnesses) -> list[str]:
    """Every disagreement, by name."""
    wrong = list(found.journal.wrong)
    wrong += _compare_told(found.journal, found.jobs)
    wrong += [
        f"job {job.id}: is {job.state} {job.reason}".rstrip()
        for job in found.jobs
        if job.state not in ENDED
    ]
    wrong += [
        f"job {job.id}: parked without a reason"
        for job in found.jobs
        if job.state == JobState.PARKED and not job.reason
    ]
    ended = [_booked(job) for job in found.jobs if job.state in ENDED]
    wrong += books.compare(found.effects, found.receipts, ended).differences
    return [*wrong, *_money_at_every_moment(found.jobs, found.effects)]


def in_database(excused: frozenset[str] = frozenset()) -> list[str]:
    """The ledger's invariants that can be seen in the database itself, but for those that somebody else sees to."""
    return [
        f"{one.id}: {one.statement} {'undecided' if one.is_undecided else ', '.join(one.ids)}"
        for one in check.run()
        if not one.is_ok() and one.id not in excused
    ]


def _compare_told(journal: Journal, jobs: Sequence[Job]) -> Iterable[str]:
    """Nothing acknowledged is lost, doubled or changed."""
    by_key: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_key[job.key].append(job)
    for key, told in journal.told.items():
        stored = by_key[key]
        if not told.booking:
            yield f"{key}: never answered"
        elif len(stored) != 1:
            yield f"{key}: accepted, and has {len(stored)} jobs"
        elif (stored[0].booking, stored[0].amount_minor) != (told.booking, told.price_minor):
            yield f"{key}: told {told.booking} for {told.price_minor}, stored {stored[0]}"


def _money_at_every_moment(jobs: Sequence[Job], effects: Sequence[books.Effect]) -> Iterable[str]:
    """What was taken for a booking is never below nothing, and never above its price."""
    price = {job.booking: job.amount_minor for job in jobs}
    net: dict[str, int] = defaultdict(int)
    sign = {"capture": 1, "refund": -1}
    for effect in effects:  # in the order in which the provider made them
        net[effect.subject] += sign.get(effect.kind, 0) * (effect.amount_minor or 0)
        if not 0 <= net[effect.subject] <= price.get(effect.subject, 0):
            yield f"booking {effect.subject}: {net[effect.subject]} taken after {effect.operation_id}"


def _booked(job: Job) -> books.Booked:
    return books.Booked(job.booking, job.state, job.amount_minor, job.currency, job.reason)


def obeyed_waits(requests: Sequence[Mapping[str, Any]], seconds: float) -> tuple[int, list[str]]:
    """How often a 429 was followed by the same operation's next request, and each that came before `seconds` were over."""
    told: dict[str, float] = {}
    obeyed, early = 0, []
    for one in requests:
        operation, at = one["operation_id"], one["received_at"]
        if operation in told:
            waited = at - told.pop(operation)
            obeyed += 1
            if waited < seconds:
                early.append(
                    f"{operation}: asked again {waited:.2f} s after a 429 of {seconds:g} s"
                )
        if one["status"] == TOO_MANY:
            told[operation] = at
    return obeyed, early

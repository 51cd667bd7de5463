"""What staff read of a job: what is wrong in one sentence, what is known of each operation, its money, and its journal.

The promise: everything here is read from the journal at the time of asking, unknown is never shown as failed, and text from
outside stays text: whoever renders it escapes it. It writes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger import acts, journal, models, operations, saga, standing
from ledger.operations import Attempt, Entry, Key, Operation, Receipt, Sighting
from ledger.saga import Direction
from ledger.states import ENDED, JobState, ParkedReason

SHOWN_MAX = 400  # characters of one piece of evidence
WRONG: Mapping[str, str] = {
    ParkedReason.UNKNOWN_OUTCOME: "Nobody knows whether {what} happened; nothing moves until it is known.",
    ParkedReason.COMPENSATION_FAILED: "{what} did not succeed; what it should have undone still stands.",
    ParkedReason.REFUSED_AFTER_PIVOT: "{what} was refused after the point of no return.",
    ParkedReason.CONFLICT: "{what} cannot go on: this build would do something else than was begun.",
    ParkedReason.CONTRADICTION: "{what} is recorded one way, and there is evidence for another.",
    ParkedReason.UNWRITABLE: "What came back for {what} could not be stored.",
    ParkedReason.WORKER_LOST: "Its workers died, again and again.",
    ParkedReason.EXHAUSTED: "{what} could not be sent, and its attempts are spent.",
    ParkedReason.UNSUPPORTED_VERSION: "No build that runs knows its version.",
    ParkedReason.DEADLINE_AFTER_PIVOT: "Its deadline passed after the point of no return.",
}
assert set(WRONG) == set(ParkedReason), "every reason has its sentence"


@dataclass(frozen=True, slots=True)
class Line:
    """One operation: what we sent, what we heard, what the provider last said when it was asked, and what follows."""

    name: str
    operation_id: str
    sent: str
    heard: str
    asked: str
    standing: str


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the journal, in words."""

    at: datetime
    what: str
    operation: str
    detail: str


@dataclass(frozen=True, slots=True)
class Page:
    """One job as staff see it."""

    headline: str
    why: str
    lines: list[Line]
    money: standing.Money
    events: list[Event]
    operations: list[str]  # as an act names them; the one that the job is parked for comes first
    is_whole: bool  # it is parked for no operation in particular
    heard: int  # sightings that the page shows


@dataclass(frozen=True, slots=True)
class Summary:
    """One job in a list."""

    headline: str
    at_risk: str


def page(job: models.Job) -> Page:
    """Everything about one job."""
    entries = journal.read([job.id])[job.id]
    ops = operations.fold(entries)
    blocked = acts.parked_for(job.id, job.parked_detail)
    return Page(
        headline=headline(job, ops),
        why=job.parked_detail,
        lines=[_line(job.id, key, op) for key, op in ops.items()],
        money=standing.money(ops),
        events=sorted([*_events(entries), *_acts(job.id)], key=lambda event: event.at),
        operations=[acts.name_of(k) for k in sorted(ops, key=lambda k: k != blocked)],
        is_whole=blocked is None,
        heard=operations.heard(ops),
    )


def summaries(jobs: Sequence[models.Job]) -> dict[UUID, Summary]:
    """What a list says of these jobs: their journals are read together."""
    journals = journal.read([job.id for job in jobs])
    found = {}
    for job in jobs:
        ops = operations.fold(journals[job.id])
        risk = "" if job.state in ENDED else at_risk(standing.money(ops))
        found[job.id] = Summary(headline(job, ops), risk)
    return found


def headline(job: models.Job, ops: Mapping[Key, Operation]) -> str:
    """What is wrong, or that nothing is, in one sentence."""
    if job.state in ENDED:
        return f"It has ended: {job.state}."
    if job.state == JobState.PARKED:
        key = acts.parked_for(job.id, job.parked_detail)
        wrong = WRONG[job.parked_reason].format(what=_what(key, ops))
        return wrong[:1].upper() + wrong[1:]
    blocked = [k for k, op in ops.items() if k[1] is Direction.BACKWARD and op.is_refused()]
    if blocked:
        return f"It goes backward; {_what(blocked[0], ops)} was refused. Acts wait until it parks."
    return f"It is {job.state} and goes {job.direction}; nobody is needed."


def at_risk(money: standing.Money) -> str:
    """What may be lost before a job has ended: in doubt or contradicted, or taken and not given back."""
    sums = {currency: max(m.at_risk, m.held) for currency, m in money.items()}
    return ", ".join(_amount(minor, currency) for currency, minor in sums.items() if minor)


def _amount(minor: int, currency: str) -> str:
    return f"{minor} {currency} (minor units)"


def _what(key: Key | None, ops: Mapping[Key, Operation]) -> str:
    if key is None:
        return "an operation"
    step, direction = key
    what = step if direction is Direction.FORWARD else f"the undo of {step}"
    operation = ops.get(key)
    first = operation.attempts[0].arguments if operation and operation.attempts else None
    if first and "amount_minor" in first and "currency" in first:
        return f"{what}, {_amount(first['amount_minor'], first['currency'])},"
    return what


def _line(job_id: UUID, key: Key, operation: Operation) -> Line:
    step, direction = key
    asked = [s for s in operation.sightings if s.kind in ("probe", "tombstone")]
    return Line(
        name=step if direction is Direction.FORWARD else f"undo of {step}",
        operation_id=saga.operation_id(job_id, step, direction),
        sent=_sent(operation.attempts),
        heard=_heard(operation.receipts.values()),
        asked=f"{asked[-1].kind}: {asked[-1].outcome}, {_time(asked[-1].at)}" if asked else "",
        standing=_standing(operation),
    )


def _sent(attempts: Sequence[Attempt]) -> str:
    if not attempts:
        return "nothing"
    last = attempts[-1]
    return f"{len(attempts)} x, last {_time(last.at)}, arguments {last.fingerprint.hex()[:8]}"


def _heard(receipts: Iterable[Receipt]) -> str:
    last = max(receipts, key=lambda r: r.n, default=None)
    if last is None:
        return "nothing"
    said = last.evidence.get("ref") or last.evidence.get("reason") or ""
    return f"{last.outcome} {said}, {_time(last.at)}"


def _standing(operation: Operation) -> str:
    if operation.contradiction() is not None:
        return "contradicted"
    if operation.final is not None:
        ruler = operation.final.evidence.get("resolved_by")
        return f"{operation.final.outcome}{f', resolved by {ruler}' if ruler else ''}"
    if operation.doubtful():
        return "unknown"
    return "not sent" if operation.attempts else "not begun"


def _events(entries: Iterable[Entry]) -> Iterator[Event]:
    for entry in entries:
        match entry:
            case Attempt():
                detail = f"arguments {entry.fingerprint.hex()[:8]}"
                yield Event(entry.at, f"attempt {entry.n}", _key(entry), detail)
            case Receipt():
                what = f"receipt {entry.n}: {entry.outcome}"
                yield Event(entry.at, what, _key(entry), _shown(entry.evidence))
            case Sighting():
                what = f"sighting ({entry.kind}): {entry.outcome}"
                yield Event(entry.at, what, _key(entry), _shown(entry.evidence))
            case operations.Resolution():
                continue  # their rows say why, too


def _acts(job_id: UUID) -> Iterator[Event]:
    for row in models.Resolution.objects.filter(job_id=job_id).order_by("id"):
        said = f"{row.reason} {_shown(row.evidence) if row.evidence else ''}".strip()
        name = f"{row.step}:{row.direction}" if row.step else ""
        yield Event(row.at, f"{row.act} by {row.decided_by}", name, said)


def _key(entry: Attempt | Receipt | Sighting) -> str:
    return acts.name_of((entry.step, entry.direction))


def _shown(evidence: object) -> str:
    text = journal.as_text(evidence)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"

"""What a client reads of a job: its state in the client's words, its class, its operations and its journal.

The promise: unknown is never shown as failed, and nothing of the inside comes out: no provider's reference or answer, no
worker, fence or argument, no name of staff. Every field is named here; evidence is never passed on. It writes nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from ledger import acts, operations, selectors, sql, standing, states
from ledger.operations import Attempt, Entry, Key, Operation, Receipt, Sighting
from ledger.saga import Direction
from ledger.selectors import Judged
from ledger.states import ENDED, ClientState, JobState

ASKED = frozenset({"probe", "tombstone"})
TOLD_SIGHTINGS = ASKED | {"late"}  # that a worker was lost is our affair
# Acts of staff that change what becomes of the job; who did them and why stays inside.
TOLD_ACTS = frozenset({"ask", "retry", "done", "not-done", "compensate", "close"})


@dataclass(frozen=True, slots=True)
class JobView:
    """`outcome_known` is false while an operation is in doubt: not the same as failed. `version` grows with the journal."""

    id: UUID
    state: ClientState
    standing: standing.Standing
    outcome_known: bool
    version: int


@dataclass(frozen=True, slots=True)
class OperationView:
    """One direction of one step. `outcome` None: nobody knows, since it was last sent; `since`: when it became known.

    `is_blocked`: it cannot go on by itself, and holds the job up.
    """

    step: str
    direction: Direction
    attempts: int
    outcome: str | None
    since: datetime | None
    sent_at: datetime | None
    asked_at: datetime | None
    is_blocked: bool


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the journal. `outcome`: what a receipt or a sighting says, or what staff did; `source`: of a sighting."""

    at: datetime
    entry: str
    step: str | None
    direction: Direction | None
    n: int | None = None
    outcome: str | None = None
    source: str | None = None


STATES = "SELECT id, state, direction FROM ledger_job WHERE id = ANY(%s::uuid[])"


def client_states(job_ids: Sequence[UUID]) -> dict[UUID, ClientState]:
    """Only the state of each: what a list is searched by."""
    rows = sql.fetch(STATES, [list(job_ids)])
    return {id_: _state(JobState(state), Direction(way)) for id_, state, way in rows}


def jobs(job_ids: Sequence[UUID]) -> dict[UUID, JobView]:
    """Those of these jobs that exist. Asked within one snapshot, or while they are locked."""
    return {one.id: _view(one) for one in selectors.judged(job_ids)}


def job_operations(job_id: UUID) -> list[OperationView]:
    """What has been begun, in order of first appearance."""
    with sql.snapshot():
        found = selectors.judged([job_id])
    return [
        _operation(one, key, op)
        for one in found
        for key, op in operations.fold(one.entries).items()
    ]


def journal(job_id: UUID, limit: int) -> tuple[list[Event], bool]:
    """The last so many entries, oldest first; and whether there are earlier ones."""
    with sql.snapshot():
        entries = selectors.entries(job_id)
    events = sorted(_events(entries), key=lambda event: event.at)
    return events[-limit:], len(events) > limit


def _view(one: Judged) -> JobView:
    ops = operations.fold(one.entries)
    return JobView(
        id=one.id,
        state=_state(one.job.state, one.job.direction),
        standing=standing.classify(one.job, one.entries),
        outcome_known=not any(op.doubtful() or op.contradiction() for op in ops.values()),
        version=one.seq,
    )


def _state(state: JobState, direction: Direction) -> ClientState:
    return states.for_client(state, is_backward=direction is Direction.BACKWARD)


def _operation(one: Judged, key: Key, op: Operation) -> OperationView:
    outcome, since = _known(op)
    asked = [s.at for s in op.sightings if s.kind in ASKED]
    return OperationView(
        step=key[0],
        direction=key[1],
        attempts=len(op.attempts),
        outcome=outcome,
        since=since,
        sent_at=op.attempts[-1].at if op.attempts else None,
        asked_at=max(asked, default=None),
        is_blocked=_is_blocked(one, key, op),
    )


def _known(op: Operation) -> tuple[str | None, datetime | None]:
    """A final outcome that nothing speaks against, or that nothing was sent; else nothing is known."""
    if op.contradiction() is not None or op.doubtful():
        return None, None
    if op.final is not None:
        return str(op.final.outcome), op.final.at
    return "not_sent", max((r.at for r in op.receipts.values()), default=None)


def _is_blocked(one: Judged, key: Key, op: Operation) -> bool:
    if one.job.state in ENDED:
        return False
    is_parked = one.job.state is JobState.PARKED
    if is_parked and acts.parked_for(one.id, one.parked_detail) == key:
        return True
    return op.contradiction() is not None or (key[1] is Direction.BACKWARD and op.is_refused())


def _events(entries: Iterable[Entry]) -> Iterator[Event]:
    for entry in entries:
        match entry:
            case Attempt():
                yield Event(entry.at, "attempt", entry.step, entry.direction, entry.n)
            case Receipt():
                outcome = str(entry.outcome)
                yield Event(entry.at, "receipt", entry.step, entry.direction, entry.n, outcome)
            case Sighting() if entry.kind in TOLD_SIGHTINGS:
                told = (entry.n, entry.outcome, entry.kind)
                yield Event(entry.at, "sighting", entry.step, entry.direction, *told)
            case operations.Resolution() if entry.act in TOLD_ACTS:
                step, direction = (entry.step, entry.direction) if entry.step else (None, None)
                yield Event(entry.at, "resolution", step, direction, outcome=entry.act)
            case _:
                continue

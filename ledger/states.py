"""The states of a job and the only moves between them. Pure; the database's guard, the tests and the diagram in
`docs/architecture.md` are made from `TRANSITIONS`, so that there is one list to change.

Who moves a job here, what moves it on, who reaps it:

    waiting      submission, a due time, a change of lane → promotion ranks it
    queued       promotion, a release, a reclaim          → a claim takes it
    running      a claim, under a lease                   → its owner settles it; the reclaim sweep takes it when it expires
    parked       only blocked operations are left         → a person, or evidence that decides
    confirmed, refused, compensated, closed               ended: only retention touches them, and a contradiction
"""

from enum import StrEnum


class JobState(StrEnum):
    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    PARKED = "parked"
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    COMPENSATED = "compensated"
    CLOSED = "closed"


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset({JobState.QUEUED, JobState.PARKED}),
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.WAITING, JobState.PARKED}),
    JobState.RUNNING: frozenset(
        {
            JobState.QUEUED,
            JobState.WAITING,
            JobState.PARKED,
            JobState.CONFIRMED,
            JobState.REFUSED,
            JobState.COMPENSATED,
        }
    ),
    JobState.PARKED: frozenset({JobState.WAITING, JobState.CLOSED}),
    JobState.CONFIRMED: frozenset({JobState.PARKED}),
    JobState.REFUSED: frozenset({JobState.PARKED}),
    JobState.COMPENSATED: frozenset({JobState.PARKED}),
    JobState.CLOSED: frozenset({JobState.PARKED}),
}

ENDED = frozenset({JobState.CONFIRMED, JobState.REFUSED, JobState.COMPENSATED, JobState.CLOSED})


class ClientState(StrEnum):
    """What a client is told. Whether a job waits, is queued or runs is the engine's affair, and changes all the time; which
    way it goes is the client's.
    """

    IN_PROGRESS = "in_progress"
    COMPENSATING = "compensating"
    PARKED = "parked"
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    COMPENSATED = "compensated"
    CLOSED = "closed"


def for_client(state: JobState, *, is_backward: bool) -> ClientState:
    """The state of a job as its client sees it."""
    if state in (JobState.WAITING, JobState.QUEUED, JobState.RUNNING):
        return ClientState.COMPENSATING if is_backward else ClientState.IN_PROGRESS
    return ClientState(state.value)


class ParkedReason(StrEnum):
    """Why a job waits for a person."""

    UNKNOWN_OUTCOME = "unknown_outcome"
    COMPENSATION_FAILED = "compensation_failed"
    REFUSED_AFTER_PIVOT = "refused_after_pivot"
    CONFLICT = "conflict"
    CONTRADICTION = "contradiction"
    UNWRITABLE = "unwritable"
    WORKER_LOST = "worker_lost"
    EXHAUSTED = "exhausted"
    UNSUPPORTED_VERSION = "unsupported_version"
    DEADLINE_AFTER_PIVOT = "deadline_after_pivot"


class Lane(StrEnum):
    """A Celery queue with its own workers."""

    FORWARD = "forward"
    COMPENSATION = "compensation"
    SWEEPS = "sweeps"
    WEBHOOKS = "webhooks"


JOB_LANES = (Lane.FORWARD, Lane.COMPENSATION)


def edges() -> list[tuple[str, str]]:
    """Every allowed move, sorted: what the guard in the database is made from."""
    return sorted((str(a), str(b)) for a, targets in TRANSITIONS.items() for b in targets)


def mermaid() -> str:
    """The diagram in `docs/architecture.md`; a test compares the two."""
    return "\n".join(["stateDiagram-v2", *(f"    {a} --> {b}" for a, b in edges())])

"""Jobs brought to a known point by the ledger's own functions, for tests of single writes."""

from typing import Any
from uuid import UUID, uuid4

from ledger import canonical, journal, leases, models, outcomes, saga, shares
from ledger.journal import NewAttempt, NewReceipt, Write
from ledger.saga import Direction
from tests import factories, psql

FORWARD, BACKWARD = Direction.FORWARD, Direction.BACKWARD


def claim(definition: saga.Saga, slots: int = 1, lane: str = "forward") -> list[leases.Claimed]:
    """Promote what is due and claim it, as a run does."""
    shares.promote(lane)
    return leases.claim(lane, slots, [definition.key], uuid4())


def running(definition: saga.Saga, input_: dict[str, Any] | None = None) -> leases.Claimed:
    """One accepted job under a lease of this process."""
    factories.submit(definition, input_)
    (claimed,) = claim(definition)
    return claimed


def write(claimed: leases.Claimed, **more: Any) -> Write:
    """A guarded write of that owner; `more` says what differs."""
    known: dict[str, Any] = {
        "job_id": claimed.id,
        "fence": claimed.fence,
        "token": claimed.token,
        "seq": claimed.seq,
        "knows": claimed.direction,
        "direction": claimed.direction,
        "lane": claimed.lane,
    }
    return Write(**{**known, **more})


def attempt(
    step: str = "room", n: int = 1, direction: Direction = FORWARD, **arguments: Any
) -> NewAttempt:
    return NewAttempt(step, direction, n, arguments, canonical.fingerprint(arguments))


def receipt(
    outcome: str = "confirmed",
    step: str = "room",
    n: int = 1,
    direction: Direction = FORWARD,
    **evidence: Any,
) -> NewReceipt:
    return NewReceipt(step, direction, n, outcomes.ReceiptOutcome(outcome), evidence)


def rows(job_id: UUID) -> dict[str, int]:
    """How many rows of each journal table a job has."""
    tables = (models.Attempt, models.Receipt, models.Checkpoint, models.Resolution, models.Sighting)
    return {t._meta.model_name or "": t.objects.filter(job_id=job_id).count() for t in tables}


def snapshot(job_id: UUID) -> tuple[dict[str, Any], dict[str, int]]:
    """Everything that a refused write must leave as it was, late sightings excepted."""
    columns = dict(models.Job.objects.filter(id=job_id).values().get())
    counts = rows(job_id)
    del counts["sighting"]
    return columns, counts


def lose(job_id: UUID) -> None:
    """Somebody else becomes the owner: fence + 1, the lease goes on. From any thread, on a connection of its own."""
    with psql.connected("worker") as session:
        session.execute(
            "UPDATE ledger_job SET acting_fence = fence, fence = fence + 1, owner = gen_random_uuid()"
            " WHERE id = %s AND state = 'running'",
            [job_id],
        )


def turn(job_id: UUID, by: str = "guest") -> int:
    """Cancel: the conditional update that turns a job and leaves its fence alone; how many rows it moved."""
    with psql.connected("worker") as session:
        return session.execute(
            "UPDATE ledger_job SET acting_fence = fence, direction = 'backward', turned_by = %s,"
            " turned_reason = 'cancelled', turned_at = ledger_now() WHERE id = %s AND direction = 'forward'"
            " AND NOT pivot_sent AND state IN ('waiting', 'queued', 'running')",
            [by, job_id],
        ).rowcount


def settle(*writes: Write) -> list[str]:
    """The results of one settle, in order."""
    written = journal.settle(writes)
    return [written[w.job_id].result for w in writes]

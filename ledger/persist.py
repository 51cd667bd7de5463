"""Writes of the loop that must go through, whatever the database does meanwhile.

A lost reply is recognised on the way back in (by write id, by claim token), a transient error repeats the whole until the
first lease ends, and one row that can never be stored does not lose the others: it is written again alone, with length
and hash in place of its evidence, and its job parks.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid4

from ledger import journal, leases, shares, sightings, sql, telemetry
from ledger.holding import Held
from ledger.journal import Write, Written
from ledger.leases import Claimed
from ledger.operations import Entry

Decided = tuple[Held, Write]


def claim(
    lane: str, slots: int, known: Sequence[tuple[str, int]], until: float, *, suspect: bool = False
) -> list[tuple[Claimed, list[Entry]]]:
    """Promote what is due, then take up to `slots` jobs with their journals, or one `suspect`."""
    token, tries = uuid4(), 0

    def once() -> list[Claimed]:
        nonlocal tries
        tries += 1
        before = leases.claimed_before(token) if tries > 1 else []
        return before or leases.claim(lane, slots, known, token, suspect=suspect)

    sql.persist(lambda: shares.promote(lane), until)
    claimed = sql.persist(once, until)
    old = [job.id for job in claimed if job.seq > 0]
    journals = sql.persist(lambda: journal.read(old), until) if old else {}
    return [(job, journals.get(job.id, [])) for job in claimed]


def has_suspect(lane: str, known: Sequence[tuple[str, int]], until: float) -> bool:
    """Whether a job waits that has to be driven alone."""
    return sql.persist(lambda: leases.has_suspect(lane, known), until)


def store(decided: Sequence[Decided], until: float) -> dict[UUID, Written]:
    """All writes in one commit; where the database refuses a row, one job at a time."""
    if not decided:
        return {}
    write_id, writes = uuid4(), [write for _, write in decided]
    try:
        return sql.persist(lambda: journal.settle(writes, write_id), until)
    except Exception as error:
        if sql.trouble(error) is not sql.Trouble.ROW:
            raise
        telemetry.emit(
            "job.unwritable", level="error", sqlstate=sql.state_of(error), count=len(decided)
        )
        if len(decided) == 1:
            return _store_without_evidence(*decided[0], error, until)
    return {job: written for pair in decided for job, written in store([pair], until).items()}


def sight(seen: Sequence[sightings.NewSighting], until: float) -> datetime | None:
    """Record evidence from outside a job's authority; when, by the database's clock."""
    return sql.persist(lambda: sightings.record(seen), until) if seen else None


def _store_without_evidence(
    held: Held, refused: Write, error: Exception, until: float
) -> dict[UUID, Written]:
    held.forget_unwritable(f"{sql.state_of(error)} {sql.constraint_of(error)}".strip())
    write, write_id = held.decide(leaving=False), uuid4()
    refused.take_over(write)
    return sql.persist(lambda: journal.settle([write], write_id), until)

"""Sweeps: bounded, single-flight passes of beat over the ledger. They make jobs runnable and never run one.

What would break without them: a job whose worker died would stay under a dead lease, a due time would pass unseen, and a
ticket that the broker lost would never be rung again. Each may run twice at once, or be killed half-way: every change is
one conditional statement, and what is left over is found by the next pass.
"""

from dataclasses import dataclass

from django.db import transaction

from ledger import crashpoints, leases, selectors, shares, sql, telemetry, tickets, turns
from ledger import reconcile as reconciling
from ledger.states import JOB_LANES

ADVISORY_CLASS = 0x7377  # "sw"
RECLAIM_BATCH = 500
BATCHES_MAX = 20


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass did. `skipped`: another pass of this sweep was at work."""

    name: str
    count: int = 0
    skipped: bool = False


def reclaim() -> Swept:
    """End leases that have expired, and ring the lanes that got jobs back. Single-flight: the lock is the transaction's,
    so that a killed sweep cannot hold it.
    """
    total = 0
    for _ in range(BATCHES_MAX):
        with transaction.atomic(durable=True):
            if not sql.fetch("SELECT pg_try_advisory_xact_lock(%s, 1)", [ADVISORY_CLASS])[0][0]:
                return Swept("reclaim", total, skipped=True)
            counts = leases.reclaim(RECLAIM_BATCH)
        crashpoints.reach("reclaim.after")
        for lane in counts:
            tickets.ring(lane)
        total += sum(counts.values())
        if sum(counts.values()) < RECLAIM_BATCH:
            break
    return Swept("reclaim", total)


def expire_deadlines() -> Swept:
    """Turn back jobs whose deadline has passed before their pivot."""
    return Swept("deadlines", turns.expire_deadlines(RECLAIM_BATCH))


def reconcile() -> Swept:
    """Judge what was seen of jobs that nobody owns."""
    return Swept("reconcile", reconciling.judge(RECLAIM_BATCH))


def promote() -> Swept:
    """Rank what has come due, where no run does it. Single-flight per lane, with a bounded wait (`ledger.shares`)."""
    total = 0
    for lane in JOB_LANES:
        count = shares.promote(lane)
        if count:
            tickets.ring(lane)
        total += count
    if total:
        telemetry.emit("jobs.promoted", sweep="promote", count=total)
    return Swept("promote", total)


def ring() -> Swept:
    """Ring every lane that has work a worker could take now: covers every ticket that was lost. Two at once ring twice,
    which is harmless.
    """
    lanes = selectors.runnable_lanes()
    crashpoints.reach("ring.after_select")
    for lane in lanes:
        tickets.ring(lane)
    return Swept("ring", len(lanes))

"""Sweeps: bounded, single-flight passes of beat over the ledger. They make jobs runnable and never run one.

What would break without them: a job whose worker died would stay under a dead lease, a due time would pass unseen, and a
ticket that the broker lost would never be rung again. Each may run twice at once, or be killed half-way: every change is
one conditional statement, and what is left over is found by the next pass. A row that the database refuses is done
without (`ledger.singly`); no pass remembers where another one ended.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction

from ledger import (
    crashpoints,
    leases,
    retention,
    selectors,
    shares,
    singly,
    sql,
    telemetry,
    tickets,
    turns,
    versions,
)
from ledger import reconcile as reconciling
from ledger.states import JOB_LANES
from ledger.watch import Swept

ADVISORY_CLASS = 0x7377  # "sw"
RECLAIM_BATCH = 500
RETAIN_BATCH = 500
BATCHES_MAX = 20


class AnotherPass(Exception):
    """Another pass of this sweep is at work."""


def reclaim() -> Swept:
    """End leases that have expired, and ring the lanes that got jobs back. Single-flight: the lock is the transaction's,
    so that a killed sweep cannot hold it.
    """
    total = 0
    for _ in range(BATCHES_MAX):
        try:
            lanes = Counter(singly.written("reclaim", _reclaim, _expired))
        except AnotherPass:
            return Swept("reclaim", total, skipped=True)
        crashpoints.reach("reclaim.after")
        for lane in lanes:
            tickets.ring(lane)
        total += lanes.total()
        if lanes.total() < RECLAIM_BATCH:
            break
    return Swept("reclaim", total)


def _reclaim(only: singly.Only) -> list[str]:
    """The lane of each job that was given back."""
    with transaction.atomic(durable=True):
        if not sql.fetch("SELECT pg_try_advisory_xact_lock(%s, 1)", [ADVISORY_CLASS])[0][0]:
            raise AnotherPass
        return list(Counter(leases.reclaim(RECLAIM_BATCH, only)).elements())


def _expired(tried: Sequence[UUID]) -> list[UUID]:
    return leases.expired(RECLAIM_BATCH, tried)


def expire_deadlines() -> Swept:
    """Turn back jobs whose deadline has passed before their pivot."""
    return Swept("deadlines", turns.expire_deadlines(RECLAIM_BATCH))


def park_overdue() -> Swept:
    """Put in front of a person what is far past its deadline with its pivot sent."""
    return Swept("overdue", turns.park_overdue(RECLAIM_BATCH))


def park_unsupported() -> Swept:
    """Put in front of a person what no build can drive."""
    return Swept("unsupported", versions.park_unsupported(RECLAIM_BATCH))


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


def retain() -> Swept:
    """Remove what ended longer than RETENTION_DAYS ago, in its own role; nothing where no term is set."""
    total = 0
    if settings.RETENTION_DAYS:
        term = timedelta(days=settings.RETENTION_DAYS)
        with retention.logged_in():
            for _ in range(BATCHES_MAX):
                removed = retention.retain(term, RETAIN_BATCH)
                total += removed
                if removed < RETAIN_BATCH:
                    break
    return Swept("retain", total)

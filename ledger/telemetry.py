"""The catalogue of what the ledger says about itself: event names for logs, counters and histograms for metrics.

Log names are `<noun>.<past verb>`, metrics `ledger_<noun>_<unit>`; a name that is not listed here is an error, so that
dashboards and alerts can trust the list. Tenant and job ids are never labels.
"""

from contextlib import AbstractContextManager
from typing import Any

import structlog
from prometheus_client import Counter, Histogram

EVENTS = frozenset(
    {
        "job.accepted",
        "job.settled",
        "job.parked",
        "job.resolved",
        "job.unwritable",
        "jobs.promoted",
        "jobs.reclaimed",
        "job.poisoned",
        "thread.refused",
        "jobs.released",
        "jobs.retained",
        "jobs.turned",
        "jobs.unsupported",
        "jobs.judged",
        "lease.lost",
        "write.refused",
        "write.repeated",
        "call.abandoned",
        "call.late",
        "plan.failed",
        "local.failed",
        "local.repeated",
        "ticket.published",
        "ticket.failed",
        "sweep.failed",
        "sweep.unnoted",
        "row.refused",
        "jobs.overdue",
        "run.failed",
        "connection.replaced",
        "worker.ready",
        "worker.leaving",
        "owner.lost",
        "watcher.failed",
        "circuit.opened",
        "circuit.closed",
        "booking.accepted",
        "holds.expired",
        "webhook.failed",
        "webhook.disabled",
        "request.failed",
        "request.unreadable",
        "answer.not_taken",
        "key.use_not_noted",
        "keys.guessed",
        "rates.parted",
    }
)

operation_seconds = Histogram(
    "ledger_operation_seconds",
    "Time of one call of an operation",
    ["step", "direction", "outcome"],
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
operations = Counter(
    "ledger_operations", "Receipts written, by outcome", ["step", "direction", "outcome"]
)
cost = Counter("ledger_cost_minor", "Provider fees as receipts state them", ["step", "currency"])
publications = Counter("ledger_publications", "Tickets published", ["lane", "result"])
stale_writes = Counter("ledger_stale_writes", "Writes refused under an old fence", ["write"])
submissions = Counter("ledger_submissions", "Submissions, by result", ["result"])
sweep_failures = Counter("ledger_sweep_failures", "Passes of sweeps that failed", ["sweep"])
refused_rows = Counter("ledger_refused_rows", "Jobs that a sweep could not write", ["sweep"])
permits = Counter(
    "ledger_permits",
    "Calls that a limited provider's permits let through or put off",
    ["provider", "lane", "result"],
)
leases_recovered = Counter("ledger_leases_recovered", "Leases ended for their owner", ["how"])

for _write in ("settle", "renew"):
    stale_writes.labels(
        write=_write
    )  # zero is a figure too: an alert on a family that is not there never fires

_log = structlog.get_logger("amends")


def emit(event: str, *, level: str = "info", **fields: Any) -> None:
    """One log line of the catalogue; AssertionError for a name that is not in it."""
    assert event in EVENTS, f"{event} is not in the catalogue"
    getattr(_log, level)(event, **fields)


def bound(**fields: Any) -> AbstractContextManager[None]:
    """Within the block, every log line of this thread carries these fields."""
    return structlog.contextvars.bound_contextvars(**fields)


def context() -> dict[str, Any]:
    """The fields bound now."""
    return structlog.contextvars.get_contextvars()

"""Whether new bookings come in at all: within the tenant's quota of jobs that wait, and while the work that waits is not too
old. Otherwise they would be promises that nobody can keep soon.

Both are looked at every CACHE_SECONDS, and what was let in since counts as waiting; so a quota is exact but for what
other processes let in meanwhile. Refused is refused before anything is written: the key can be used again.
"""

import threading
from collections.abc import Callable
from http import HTTPStatus
from uuid import UUID

from django.apps import apps
from django.conf import settings

from bookings.api import faults, limits
from ledger import clock, selectors, tenancy
from ledger.states import JobState, Lane

CACHE_SECONDS = 2.0
RETRY_SECONDS = 30
TENANTS_MAX = 10_000
# Those that run are few, and the parked wait for people.
WAITING = [JobState.WAITING.value, JobState.QUEUED.value]


class _Figures:
    """What was read from the database a moment ago."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[UUID | None, tuple[float, float]] = {}

    def read(self, name: UUID | None, read: Callable[[], float]) -> float:
        until, found = self._known.get(name, (0.0, 0.0))
        if clock.monotonic() < until:
            return found
        fresh = read()
        with self._lock:
            # Else another was quicker, and some are let in by what it read.
            if self._known.get(name, (0.0, 0.0))[0] == until:
                if len(self._known) >= TENANTS_MAX:
                    self._known.clear()
                self._known[name] = (clock.monotonic() + CACHE_SECONDS, fresh)
            return self._known[name][1]

    def add(self, name: UUID | None, units: int, most: int) -> bool:
        """Whether so many more are within the most; then they count from now on."""
        with self._lock:
            until, found = self._known.get(name, (0.0, 0.0))
            if found + units > most:
                return False
            self._known[name] = (until, found + units)
            return True


figures = _Figures()


def check(tenant_id: UUID, units: int = 1) -> None:
    """Let so many new bookings of a tenant in, or raise a `faults.Problem`: 429 over the quota, 503 while overloaded."""
    if settings.BACKLOG_SECONDS_MAX and figures.read(None, _backlog) > settings.BACKLOG_SECONDS_MAX:
        detail = "there is more to do than can be done soon; the same request may be sent again"
        raise faults.Problem(
            HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", detail, retry_after=RETRY_SECONDS
        )
    if most := settings.OPEN_JOBS_MAX:
        figures.read(tenant_id, lambda: _open_jobs(tenant_id, most))
        if not figures.add(tenant_id, units, most):
            detail = f"at most {most} bookings may be waiting: let some end first"
            raise limits.exceeded(limits.OPEN_JOBS, detail, RETRY_SECONDS)


def _backlog() -> float:
    with tenancy.everyone():  # of all, and an age is all that is read
        return selectors.oldest_runnable_seconds().get(Lane.FORWARD.value, 0.0)


def _open_jobs(tenant_id: UUID, most: int) -> int:
    waiting = apps.get_model("ledger", "Job").objects.filter(tenant_id=tenant_id, state__in=WAITING)
    return int(waiting[: most + 1].count())

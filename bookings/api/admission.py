"""Whether new bookings come in at all: within the tenant's quota of jobs that wait, and while the work that waits is not too
old. Otherwise they would be promises that nobody can keep soon.

Both are looked at every CACHE_SECONDS, and what was let in since counts as waiting; so a quota is exact but for what
other processes let in meanwhile. Refused is refused before anything is written: the key can be used again. A key that was
used speaks first: its booking waits already, or has ended, and whoever asks for it again is never refused here.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from uuid import UUID

from django.apps import apps
from django.conf import settings

from bookings.api import faults, limits
from ledger import clock, selectors, submission, tenancy
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
            if self._known.get(name, (until, 0.0))[0] == until:
                if len(self._known) >= TENANTS_MAX:
                    self._known.clear()
                self._known[name] = (clock.monotonic() + CACHE_SECONDS, fresh)
            return self._known[name][1]

    def add(self, name: UUID | None, units: int, most: int) -> float | None:
        """Whether so many more are within the most: None, or until when they count."""
        with self._lock:
            until, found = self._known.get(name, (0.0, 0.0))
            if found + units > most:
                return None
            self._known[name] = (until, found + units)
            return until

    def give_back(self, name: UUID | None, units: int, until: float) -> None:
        """So many of those that count until then do not wait after all. What was read since knows."""
        with self._lock:
            known, found = self._known.get(name, (0.0, 0.0))
            if known == until:
                self._known[name] = (known, found - units)


figures = _Figures()


@dataclass(slots=True)
class Place:
    """What was taken for some keys. `made`: how many of them made a booking, for their block to say."""

    taken: int = 0
    until: float | None = None
    used: frozenset[str] = frozenset()
    refusal: faults.Problem | None = None
    made: int = 0

    def refusal_of(self, key: str) -> faults.Problem | None:
        return None if key in self.used else self.refusal


@contextmanager
def place(tenant_id: UUID, keys: Sequence[str]) -> Iterator[Place]:
    """Around the acceptance of what these keys ask for. Where they are too many, those that were used are let through, and
    the others refused: 429 over the quota, 503 while overloaded; a `faults.Problem` where there are no used ones. Places of
    what makes no booking are given back.
    """
    found = _take_for(tenant_id, keys)
    try:
        yield found
    finally:
        if found.until is not None:
            figures.give_back(tenant_id, found.taken - found.made, found.until)


def _take_for(tenant_id: UUID, keys: Sequence[str]) -> Place:
    if not keys:
        return Place()
    try:
        return Place(len(keys), _take(tenant_id, len(keys)))
    except faults.Problem as refusal:
        used = frozenset(submission.used(tenant_id, keys))
        if not used:
            raise
        new = sum(key not in used for key in keys)
        try:
            return Place(new, _take(tenant_id, new) if new else None, used)
        except faults.Problem:
            return Place(used=used, refusal=refusal)


def _take(tenant_id: UUID, units: int) -> float | None:
    """Until when these count; None where there is no quota."""
    if settings.BACKLOG_SECONDS_MAX and figures.read(None, _backlog) > settings.BACKLOG_SECONDS_MAX:
        detail = "there is more to do than can be done soon; the same request may be sent again"
        raise faults.Problem(
            HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", detail, retry_after=RETRY_SECONDS
        )
    if most := settings.OPEN_JOBS_MAX:
        figures.read(tenant_id, lambda: _open_jobs(tenant_id, most))
        until = figures.add(tenant_id, units, most)
        if until is None:
            detail = f"at most {most} bookings may be waiting: let some end first"
            raise limits.exceeded(limits.OPEN_JOBS, detail, RETRY_SECONDS)
        return until
    return None


def _backlog() -> float:
    with tenancy.everyone():  # of all, and an age is all that is read
        return selectors.oldest_runnable_seconds().get(Lane.FORWARD.value, 0.0)


def _open_jobs(tenant_id: UUID, most: int) -> int:
    waiting = apps.get_model("ledger", "Job").objects.filter(tenant_id=tenant_id, state__in=WAITING)
    return int(waiting[: most + 1].count())

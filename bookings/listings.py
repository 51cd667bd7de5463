"""A tenant's bookings, newest first, page by page; and its report. Neither reads more rows than it says.

A page walks the index (tenant, id) or (tenant, client_reference, id) from where the last one ended and looks at a bounded
number of bookings: what an index does not serve (dates, state, class) is judged on those. So a page may be short, even
empty, and yet not be the last.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from bookings import selectors
from bookings.models import Booking
from bookings.selectors import BookingView
from ledger import client_view, sql
from ledger import selectors as ledger_selectors
from ledger.standing import Report, Standing
from ledger.states import ClientState

LOOKED_AT_MAX = 5_000  # bookings a page looks at
JUDGED_MAX = 1_000  # those whose journals it reads, to know their class
REPORTED_MAX = 10_000
BATCH = 200
# Between the time of a booking and that in its id: as long as a transaction may take, and more.
SLACK = timedelta(minutes=5)
UUID_TIME_SHIFT = 80  # a UUIDv7 begins with 48 bits of milliseconds


class TooMany(Exception):
    """More bookings than one report reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Bookings made at or after the one and before the other."""

    created_after: datetime | None = None
    created_before: datetime | None = None

    def holds(self, at: datetime) -> bool:
        is_after = self.created_after is None or at >= self.created_after
        return is_after and (self.created_before is None or at < self.created_before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a list is searched for; both ends of the arrivals belong to them."""

    period: Period = Period()
    state: ClientState | None = None
    standing: Standing | None = None
    arrival_from: date | None = None
    arrival_to: date | None = None
    client_reference: str | None = None

    def most(self, limit: int) -> int:
        """How many bookings a page looks at."""
        if self.standing is not None:
            return JUDGED_MAX
        is_judged = self.state or self.arrival_from or self.arrival_to or self.period != Period()
        return LOOKED_AT_MAX if is_judged else limit + 1

    def holds(self, arrival: date, created_at: datetime) -> bool:
        is_late_enough = self.arrival_from is None or arrival >= self.arrival_from
        is_early_enough = self.arrival_to is None or arrival <= self.arrival_to
        return is_late_enough and is_early_enough and self.period.holds(created_at)


@dataclass(frozen=True, slots=True)
class Page:
    """`last`: where the next page begins; None after the last one."""

    bookings: list[BookingView]
    last: UUID | None


def page(tenant_id: UUID, wanted: Wanted, *, limit: int, after: UUID | None = None) -> Page:
    """At most `limit` bookings, as of one moment."""
    most = wanted.most(limit)
    with sql.snapshot():
        rows = list(scan(tenant_id, wanted, after)[:most])
        found = _found(_candidates(rows, wanted), wanted, limit + 1)
    if len(found) > limit:
        return Page(found[:limit], found[limit - 1].id)
    return Page(found, rows[-1][0] if len(rows) == most else None)


def scan(
    tenant_id: UUID, wanted: Wanted, after: UUID | None
) -> QuerySet[Booking, tuple[UUID, UUID, date, datetime]]:
    """(booking, job, arrival, created_at), newest first."""
    rows = _made_in(Booking.objects.filter(tenant_id=tenant_id), wanted.period)
    if wanted.client_reference is not None:
        rows = rows.filter(client_reference=wanted.client_reference)
    if after is not None:
        rows = rows.filter(id__lt=after)
    return rows.order_by("-id").values_list("id", "job_id", "arrival", "created_at")


def report(tenant_id: UUID, period: Period) -> Report:
    """Every booking of the tenant made in this period, in its class. TooMany: it is to be asked for in parts."""
    rows = scan(tenant_id, Wanted(period=period), None)
    if period.created_after is not None:
        rows = rows.filter(created_at__gte=period.created_after)
    if period.created_before is not None:
        rows = rows.filter(created_at__lt=period.created_before)
    job_ids = [job for _, job, *_ in rows[: REPORTED_MAX + 1]]
    if len(job_ids) > REPORTED_MAX:
        raise TooMany
    found = Report()
    for batch in itertools.batched(job_ids, BATCH):
        with sql.snapshot():
            for one in ledger_selectors.judged(batch):
                found.add(one.job, one.entries)
    return found


def _made_in(rows: QuerySet[Booking], period: Period) -> QuerySet[Booking]:
    """By the time in the id, so that the index serves it; a little too many."""
    if period.created_after is not None:
        rows = rows.filter(id__gte=_first_id(period.created_after - SLACK))
    if period.created_before is not None:
        rows = rows.filter(id__lt=_first_id(period.created_before + SLACK))
    return rows


def _first_id(at: datetime) -> UUID:
    return UUID(int=int(at.timestamp() * 1000) << UUID_TIME_SHIFT)


def _candidates(rows: Sequence[Any], wanted: Wanted) -> list[UUID]:
    """The bookings among these that fit, their class aside."""
    fitting = [(id_, job) for id_, job, *of in rows if wanted.holds(*of)]
    if wanted.state is None:
        return [id_ for id_, _ in fitting]
    states = client_view.client_states([job for _, job in fitting])
    return [id_ for id_, job in fitting if states[job] is wanted.state]


def _found(candidates: Sequence[UUID], wanted: Wanted, enough: int) -> list[BookingView]:
    if wanted.standing is None:
        return _views(candidates[:enough])
    found: list[BookingView] = []
    for ids in itertools.batched(candidates, BATCH):
        found += [view for view in _views(ids) if view.standing is wanted.standing]
        if len(found) >= enough:
            break
    return found[:enough]


def _views(ids: Sequence[UUID]) -> list[BookingView]:
    rows = Booking.objects.select_related("hotel", "room_type").filter(id__in=ids)
    return selectors.views(list(rows.order_by("-id")))

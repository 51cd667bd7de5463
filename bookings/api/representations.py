"""What a tenant sees, member by member: nothing gets out that is not named here. Shapes for the schema are in `shapes`.

No job id, no provider's reference or answer, no fence, no name of staff; money in minor units, times in UTC.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from bookings.availability import Free, HotelView, Quote
from bookings.requests import ValidatedRequest
from bookings.selectors import BookingView
from ledger.client_view import Event, OperationView
from ledger.standing import Line, Report
from ledger.states import ClientState

SETTLED = frozenset(ClientState) - {ClientState.IN_PROGRESS, ClientState.COMPENSATING}


def booking(found: BookingView) -> dict[str, Any]:
    own = address_of(found.id)
    return {
        "id": str(found.id),
        "state": str(found.state),
        "class": str(found.standing),
        "outcome_known": found.outcome_known,
        "version": found.version,
        "hotel": found.hotel,
        "room_type": found.room_type,
        "arrival": found.arrival.isoformat(),
        "nights": found.nights,
        "guest": found.guest,
        "client_reference": found.client_reference,
        "price": found.price.as_json(),
        "created_at": instant(found.created_at),
        "links": {"self": own, "journal": f"{own}/journal", "operations": f"{own}/operations"},
    }


def address_of(booking_id: UUID) -> str:
    return f"/v1/bookings/{booking_id}"


def page(items: Iterable[dict[str, Any]], following: str | None) -> dict[str, Any]:
    return {"items": list(items), "next": following}


def journal(events: Iterable[Event], *, is_cut: bool) -> dict[str, Any]:
    return {"entries": [_event(event) for event in events], "earlier_left_out": is_cut}


def operations(found: Iterable[OperationView]) -> dict[str, Any]:
    return {"operations": [_operation(one) for one in found]}


def report(found: Report) -> dict[str, Any]:
    lines = [_line(str(standing), line) for standing, line in found.lines.items()]
    return {"bookings": found.total, "classes": lines}


def hotel(found: HotelView) -> dict[str, Any]:
    return {
        "code": found.code,
        "name": found.name,
        "timezone": found.timezone,
        "currency": found.currency,
        "room_types": found.room_types,
    }


def availability(code: str, arrival: date, nights: int, found: Sequence[Free]) -> dict[str, Any]:
    return {
        "hotel": code,
        "arrival": arrival.isoformat(),
        "nights": nights,
        "room_types": [
            {
                "room_type": free.room_type,
                "rooms_free": free.rooms_free,
                "price": free.price.as_json() if free.price else None,
            }
            for free in found
        ],
    }


def quote(wanted: ValidatedRequest, found: Quote) -> dict[str, Any]:
    return {
        "hotel": wanted.hotel,
        "room_type": wanted.room_type,
        "arrival": wanted.arrival.isoformat(),
        "nights": wanted.nights,
        "price": found.price.as_json(),
        "rooms_free": found.rooms_free,
    }


def instant(at: datetime) -> str:
    """RFC 3339, in UTC."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def instant_or_none(at: datetime | None) -> str | None:
    return instant(at) if at else None


def _event(event: Event) -> dict[str, Any]:
    return {
        "at": instant(event.at),
        "entry": event.entry,
        "step": event.step,
        "direction": str(event.direction) if event.direction else None,
        "n": event.n,
        "outcome": event.outcome,
        "source": event.source,
    }


def _operation(one: OperationView) -> dict[str, Any]:
    """Either `known` or `unknown` is there, never both."""
    known = {"outcome": one.outcome, "since": instant_or_none(one.since)} if one.outcome else None
    doubt = {"sent_at": instant_or_none(one.sent_at), "asked_at": instant_or_none(one.asked_at)}
    return {
        "step": one.step,
        "direction": str(one.direction),
        "attempts": one.attempts,
        "known": known,
        "unknown": None if known else doubt,
        "blocks": one.is_blocked,
    }


def _line(standing: str, line: Line) -> dict[str, Any]:
    return {
        "class": standing,
        "bookings": line.jobs,
        "oldest_seconds": line.oldest_seconds,
        "money": [
            {
                "currency": currency,
                "captured_minor": amounts.captured,
                "refunded_minor": amounts.refunded,
                "held_minor": amounts.held,
                "at_risk_minor": amounts.at_risk,
            }
            for currency, amounts in sorted(line.money.items())
        ],
    }

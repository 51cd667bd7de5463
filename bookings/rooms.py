"""The rooms of our hotels: hold, secure and their undos as LOCAL handlers, and the sweep that expires holds.

Handlers run on the engine's connection, inside its savepoint, after `NIGHTS.lock` has locked the nights of the whole
batch: nights first, then reservations, everywhere in this module, so that no two writers wait for each other (the one
lock order). All nights of a stay or none; every change names the holder (reserve_room's operation id) and the version
it saw, so that a late undo can never give back what now belongs to another booking.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.conf import settings
from django.db import Error, IntegrityError, connection, transaction

from bookings import requests, rooms_sql
from bookings.models import ReservationState
from ledger import crashpoints, outcomes, saga, sql, telemetry

BATCH = 100
HOLD_WAITS = 12  # how often a stay that waits for a hold to end asks again
HOLDERS_SHOWN = 10
# A sweep of locked rooms only must end within the task's limit.
LOCK_MS = 500
LOCK_ALONE_MS = 50
Key = tuple[str, str, str]

# --- Arguments of the operations: pure -------------------------------------------------------------------------------


def stay_arguments(request: Any, _done: Mapping[str, saga.Done]) -> dict[str, Any]:
    return {name: getattr(request, name) for name in ("hotel", "room_type", "arrival", "nights")}


def holder_arguments(request: Any, done: Mapping[str, saga.Done]) -> dict[str, Any]:
    """The stay, and who holds it: the holder stays reserve_room's operation id throughout the trip."""
    return {**stay_arguments(request, done), "holder": done["reserve_room"].data["holder"]}


# --- Row locks -------------------------------------------------------------------------------------------------------


def _keys(arguments: Mapping[str, Any]) -> Iterable[Key]:
    """One key a night: (hotel, room type, ISO date)."""
    arrival = date.fromisoformat(arguments["arrival"])
    for offset in range(arguments["nights"]):
        night = arrival + timedelta(days=offset)
        yield arguments["hotel"], arguments["room_type"], night.isoformat()


def _lock(keys: Sequence[tuple[Any, ...]]) -> None:
    """Lock these nights in the order given; a key without a night locks nothing."""
    assert connection.in_atomic_block, "row locks outlive nothing but their transaction"
    if not keys:
        return
    hotels, room_types, nights = (list(column) for column in zip(*keys, strict=True))
    with connection.cursor() as cursor:
        cursor.execute(rooms_sql.LOCK_NIGHTS, [hotels, room_types, nights])


NIGHTS = saga.Rows(name="bookings.room_nights", keys=_keys, lock=_lock)

# --- Handlers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """A reservation as it was read, locked; changes are conditional on this version of it."""

    id: int
    holder: str
    state: str
    version: int
    nights: int


class NightsDisagreeError(Exception):
    """A change of a reservation did not meet all of its nights. The savepoint takes it back."""

    def __init__(self, seen: Seen, changed: int) -> None:
        super().__init__(f"reservation {seen.id} has {seen.nights} nights, {changed} were changed")


def hold(call: saga.Call) -> outcomes.Outcome:
    """Take one room for each night of the stay until the hold expires; when a night has none, wait or be refused.

    The same operation id again: the reservation it made, whatever has become of it since.
    """
    stay = {name: call.arguments[name] for name in ("hotel", "room_type", "arrival", "nights")}
    with connection.cursor() as cursor:
        cursor.execute(
            rooms_sql.HOLD, {**stay, "holder": call.operation_id, "seconds": settings.HOLD_SECONDS}
        )
        found, free, reservation = cursor.fetchone()
    if reservation is not None:
        return _confirmed(reservation, call.operation_id)
    if found < stay["nights"]:
        return outcomes.Refused("no_such_night", {"found": found, "nights": stay["nights"]})
    return _without_room(call.n, stay, free)


def _without_room(n: int, stay: Mapping[str, Any], free: int) -> outcomes.Outcome:
    """Wait for a hold to end, where the room type says so, a bounded number of times; else refused. Names the holders."""
    with connection.cursor() as cursor:
        bounds = {"longest": requests.NIGHTS_MAX, "most": HOLDERS_SHOWN}
        cursor.execute(rooms_sql.KEPT_BY, {**stay, **bounds})
        holders, may_wait = cursor.fetchone()
    found = {"free": free, "nights": stay["nights"], "holders": holders}
    if may_wait and n <= HOLD_WAITS and settings.HOLD_WAIT_SECONDS > 0:
        interval = timedelta(seconds=settings.HOLD_WAIT_SECONDS / HOLD_WAITS)
        return outcomes.Throttled(interval, "room_held", found)
    return outcomes.Refused("no_room", found)


def release_if_held(call: saga.Call) -> outcomes.Outcome:
    """The undo of `hold`: gives the nights back, once.

    Given up already (released, or expired by the sweep): a stale no-op. Still secured, or no reservation at all, after
    a confirmed hold: our own books do not say that the room was given up, so this is in doubt.
    """
    seen = _find(call.arguments["holder"])
    if seen is None:
        return outcomes.Unknown("no_reservation")
    if seen.state == ReservationState.SECURED:
        return outcomes.Unknown("still_secured")
    if seen.state != ReservationState.HELD:
        return _confirmed(seen.id, seen.holder, stale=True)
    changed = _execute(rooms_sql.RELEASE, seen)
    if changed != seen.nights:
        raise NightsDisagreeError(seen, changed)
    return _confirmed(seen.id, seen.holder)


def secure(call: saga.Call) -> outcomes.Outcome:
    """Make this booking's hold permanent. A hold that expired is taken again if every night is still free.

    A hold past its time that no sweep has seen yet still has its nights, so it is secured like any other.
    """
    seen = _find(call.arguments["holder"])
    if seen is None or seen.state == ReservationState.RELEASED:
        return outcomes.Refused("hold_lost")
    if seen.state == ReservationState.HELD:
        _execute(rooms_sql.SECURE, seen, expected=1)
    elif seen.state == ReservationState.EXPIRED:
        changed = _execute(rooms_sql.TAKE_AGAIN, seen)
        if changed == 0:
            return outcomes.Refused("hold_lost")
        if changed != seen.nights:
            raise NightsDisagreeError(seen, changed)
    return _confirmed(seen.id, seen.holder)


def release_if_secured(call: saga.Call) -> outcomes.Outcome:
    """The undo of `secure`: back to a hold with a new expiry, so that reserve_room's own undo finds what it made.

    Held: it is so only through this very undo, which is then repeated without effect. Released or expired: given up
    already, a stale no-op. No reservation at all: in doubt.
    """
    seen = _find(call.arguments["holder"])
    if seen is None:
        return outcomes.Unknown("no_reservation")
    if seen.state == ReservationState.SECURED:
        _execute(rooms_sql.BACK_TO_HELD, seen, expected=1)
    is_given_up = seen.state in {ReservationState.RELEASED, ReservationState.EXPIRED}
    return _confirmed(seen.id, seen.holder, stale=is_given_up)


def _find(holder: str) -> Seen | None:
    with connection.cursor() as cursor:
        cursor.execute(rooms_sql.FIND, [holder])
        row = cursor.fetchone()
    return Seen(*row) if row else None


def _execute(statement: str, seen: Seen, *, expected: int | None = None) -> int:
    """Run one conditional change; the number of rows that it changed."""
    with connection.cursor() as cursor:
        cursor.execute(
            statement,
            {"holder": seen.holder, "version": seen.version, "seconds": settings.HOLD_SECONDS},
        )
        changed = int(cursor.rowcount)
    assert expected is None or changed == expected, f"{seen} was locked and yet has changed"
    return changed


def _confirmed(reservation: int, holder: str, *, stale: bool = False) -> outcomes.Confirmed:
    data = {"reservation": reservation, "holder": holder}
    return outcomes.Confirmed(ref=f"reservation:{reservation}", data=data, stale=stale)


# --- The sweep -------------------------------------------------------------------------------------------------------

Cursor = tuple[Any, int]


def expire_holds(limit: int) -> int:
    """Give up holds whose time has passed, oldest first, `limit` at most are looked at; the number given up.

    Safe beside itself and beside the engine: what someone else has locked is left for the next sweep. A batch that the
    database refuses, or a lock holds up, is repeated hold by hold, so that one row keeps nobody else's room.
    """
    expired, looked_at = 0, 0
    after: Cursor | None = None
    while looked_at < limit:
        due = _due(min(BATCH, limit - looked_at), after)
        if not due:
            break
        crashpoints.reach("holds.before")
        try:
            expired += _expire([row[1] for row in due], LOCK_MS)
        except Error as error:
            if not _is_of_a_row(error):
                raise
            expired += sum(_expire_alone(row[1]) for row in due)
        crashpoints.reach("holds.after")
        looked_at += len(due)
        after = due[-1]
    if expired:
        telemetry.emit("holds.expired", count=expired)
    return expired


def _due(size: int, after: Cursor | None) -> list[Cursor]:
    expires_at, reservation = after or ("-infinity", 0)
    with connection.cursor() as cursor:
        cursor.execute(rooms_sql.DUE, [expires_at, reservation, size])
        return list(cursor.fetchall())


def _expire(reservations: Sequence[int], lock_ms: int) -> int:
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{lock_ms}ms"])
        cursor.execute(rooms_sql.NIGHTS_OF, [list(reservations)])
        _lock(sorted(cursor.fetchall()))
        cursor.execute(rooms_sql.EXPIRE, [list(reservations)])
        return int(cursor.fetchone()[0])


def _expire_alone(reservation: int) -> int:
    try:
        return _expire([reservation], LOCK_ALONE_MS)
    except Error as error:
        if not _is_of_a_row(error):
            raise
        telemetry.emit("sweep.failed", level="error", sweep="expire_holds", error=str(error))
        return 0


def _is_of_a_row(error: Error) -> bool:
    """A constraint, a lock that did not come or a deadlock; not a server that is gone."""
    return isinstance(error, IntegrityError) or sql.trouble(error) is sql.Trouble.REPEAT

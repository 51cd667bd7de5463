"""Rooms under many hands: one lock order, one owner a night, and a sweep that gets in nobody's way."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from functools import partial

import pytest
from django.db import connection, transaction

from bookings import rooms
from bookings.models import Reservation, RoomNight
from ledger import saga
from ledger.outcomes import Confirmed, Outcome
from tests import hotels, psql

pytestmark = pytest.mark.usefixtures("database")


def run_batch(handler: Callable[[saga.Call], Outcome], calls: list[saga.Call]) -> list[Outcome]:
    """As the engine runs a local batch: all rows of the batch locked once, in order, then the handlers."""
    keys = sorted({key for call in calls for key in rooms.NIGHTS.keys(call.arguments)})
    with transaction.atomic(durable=True):
        rooms.NIGHTS.lock(keys)
        return [handler(call) for call in calls]


def in_threads(work: list[Callable[[], object]]) -> list[object]:
    def closing(one: Callable[[], object]) -> object:
        try:
            return one()
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        return [future.result(30) for future in [pool.submit(closing, one) for one in work]]


def live_nights() -> dict[tuple[int, date], int]:
    found: dict[tuple[int, date], int] = {}
    for one in Reservation.objects.filter(state__in=["held", "secured"]):
        for offset in range(one.nights):
            key = one.room_type_id, one.arrival + timedelta(days=offset)
            found[key] = found.get(key, 0) + 1
    return found


def taken_nights() -> dict[tuple[int, date], int]:
    found = RoomNight.objects.filter(taken__gt=0).values_list("room_type_id", "night", "taken")
    return {(room_type, night): taken for room_type, night, taken in found}


def test_overlapping_stays_in_any_order_never_deadlock_and_never_oversell() -> None:
    small = [hotels.make(code=code, capacity=3, nights=8) for code in ("ONE", "TWO")]
    dice = random.Random(7)  # noqa: S311  chance, not secrecy

    def work(worker: int) -> Callable[[], object]:
        chosen = [
            hotels.call(
                f"{worker}:{n}", dice.choice(small).stay(dice.randrange(6), dice.randint(1, 3))
            )
            for n in range(12)
        ]

        def book_and_give_back() -> int:
            held = [
                call for call in chosen if isinstance(run_batch(rooms.hold, [call])[0], Confirmed)
            ]
            later = [hotels.held_by(call.operation_id, call.arguments) for call in held]
            run_batch(rooms.secure, later[::2])
            run_batch(rooms.release_if_held, list(reversed(later[1::2])))
            return len(held)

        return book_and_give_back

    results = in_threads([work(worker) for worker in range(8)])
    assert sum(int(str(held)) for held in results) > 0
    assert taken_nights() == live_nights()
    assert max(taken_nights().values()) <= 3


def test_ten_releases_at_once_give_back_one_room() -> None:
    hotel = hotels.make(nights=2)
    rooms.hold(hotels.call("a", hotel.stay()))
    later = hotels.held_by("a", hotel.stay())
    results = in_threads([lambda: run_batch(rooms.release_if_held, [later])[0] for _ in range(10)])
    assert (
        sorted(one.stale for one in results if isinstance(one, Confirmed)) == [False] + [True] * 9
    )
    assert hotel.taken() == [0, 0]


def test_a_race_for_the_last_room_has_one_winner() -> None:
    hotel = hotels.make(nights=2)
    calls = [hotels.call(str(n), hotel.stay()) for n in range(8)]
    results = in_threads([partial(run_batch, rooms.hold, [call]) for call in calls])
    outcomes = [one[0] for one in results if isinstance(one, list)]
    assert sum(isinstance(one, Confirmed) for one in outcomes) == 1
    assert hotel.taken() == [1, 1]


def test_the_sweep_expires_what_is_due_and_nothing_else() -> None:
    hotel = hotels.make(capacity=4, nights=2)
    for holder in ("due", "not_due", "secured", "released"):
        rooms.hold(hotels.call(holder, hotel.stay()))
    rooms.secure(hotels.held_by("secured", hotel.stay()))
    rooms.release_if_held(hotels.held_by("released", hotel.stay()))
    hotels.pass_expiry("due")
    assert rooms.expire_holds(100) == 1
    assert rooms.expire_holds(100) == 0
    assert hotels.reservation("due").state == "expired"
    assert hotels.reservation("not_due").state == "held"
    assert hotel.taken() == [2, 2]
    assert taken_nights() == live_nights()


def test_the_sweep_looks_at_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "BATCH", 2)
    hotel = hotels.make(capacity=5, nights=2)
    for n in range(5):
        rooms.hold(hotels.call(str(n), hotel.stay()))
        hotels.pass_expiry(str(n))
    assert rooms.expire_holds(0) == 0
    assert rooms.expire_holds(3) == 3
    assert rooms.expire_holds(100) == 2
    assert hotel.taken() == [0, 0]


def test_the_sweep_leaves_a_reservation_that_someone_has_locked() -> None:
    hotel = hotels.make(capacity=2, nights=2)
    for holder in ("busy", "idle"):
        rooms.hold(hotels.call(holder, hotel.stay()))
        hotels.pass_expiry(holder)
    with transaction.atomic():
        Reservation.objects.select_for_update().get(holder="busy")
        assert in_threads([lambda: rooms.expire_holds(100)]) == [1]
    assert hotels.reservation("busy").state == "held"
    assert hotels.reservation("idle").state == "expired"


def test_one_bad_row_keeps_nobody_elses_room() -> None:
    bad, good = hotels.make(code="BAD", nights=2), hotels.make(code="GOOD", nights=2)
    for holder, hotel in (("bad", bad), ("good", good)):
        rooms.hold(hotels.call(holder, hotel.stay()))
        hotels.pass_expiry(holder)
    bad.room_type.nights.update(taken=0)  # giving back would go below zero
    assert rooms.expire_holds(100) == 1
    assert hotels.reservation("good").state == "expired"
    assert hotels.reservation("bad").state == "held"
    assert good.taken() == [0, 0]


def test_two_sweeps_at_once_give_back_once() -> None:
    hotel = hotels.make(capacity=20, nights=2)
    for n in range(20):
        rooms.hold(hotels.call(str(n), hotel.stay()))
        hotels.pass_expiry(str(n))
    results = in_threads([lambda: rooms.expire_holds(100) for _ in range(4)])
    assert sum(int(str(one)) for one in results) == 20
    assert hotel.taken() == [0, 0]


def test_a_night_that_somebody_keeps_locked_holds_up_no_other_hold() -> None:
    small = hotels.make(nights=4)
    for holder, first in (("locked", 0), ("free", 2)):
        rooms.hold(hotels.call(holder, small.stay(first, 1)))
        hotels.pass_expiry(holder)
    with psql.connected(autocommit=False) as other:
        other.execute("SELECT 1 FROM bookings_roomnight ORDER BY night LIMIT 1 FOR UPDATE")
        assert rooms.expire_holds(100) == 1
    assert hotels.reservation("free").state == "expired"
    assert hotels.reservation("locked").state == "held"
    assert rooms.expire_holds(100) == 1
    assert small.taken() == [0, 0, 0, 0]

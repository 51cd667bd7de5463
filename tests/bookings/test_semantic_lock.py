"""Two trips and one room, through the real engine: one keeps it, nobody pays for a room that is another's, and what comes
late changes nothing. The nights, the reservations and the provider's own books are the witnesses.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from threading import Barrier
from typing import Any
from uuid import UUID

import httpx2
import pytest
from django.db import connection, transaction

from bookings import rooms, submission
from bookings.models import Booking, Reservation, RoomType
from ledger import calls, crashpoints, engine, models, turns
from ledger.outcomes import Confirmed, Outcome
from ledger.states import Lane
from tests import drives, hotels

pytestmark = pytest.mark.usefixtures("database")

JOIN_SECONDS = 30
PAID_BACK = [("capture", 20_000), ("refund", 20_000)]


def book(small: hotels.SmallHotel, key: str) -> Booking:
    booked = submission.book(hotels.tenant(key), key, hotels.wanted(small))
    return Booking.objects.get(pk=booked.booking.pk)


def holder(booking: Booking) -> str:
    return f"{booking.job_id}:reserve_room:forward"


def effects(provider: httpx2.Client, booking: Booking) -> list[tuple[str, int | None]]:
    found: list[dict[str, Any]] = provider.get(
        "/books/effects", params={"subject": str(booking.id)}
    ).json()
    return [(effect["kind"], effect["amount_minor"]) for effect in found]


def misbehave(provider: httpx2.Client, *rules: dict[str, Any]) -> None:
    assert provider.post("/control/rules", json={"rules": list(rules)}).status_code == 200


def stalled(booking: Booking, kind: str = "capture") -> dict[str, Any]:
    """The provider asks for patience, longer than any test takes."""
    return {"do": "throttle", "match": kind, "subject": str(booking.id), "retry_after": 600}


def evidence(job_id: UUID, step: str, direction: str) -> list[tuple[str, dict[str, Any]]]:
    found = models.Receipt.objects.filter(job_id=job_id, step=step, direction=direction)
    return [(one.outcome, one.evidence) for one in found.order_by("id")]


def let_an_hour_pass(job_id: UUID) -> None:
    """The job's rows move back, no clock moves. The journal refuses an UPDATE, so as its owner and as a replica."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        for table in ("attempt", "receipt", "sighting"):
            cursor.execute(
                f"UPDATE ledger_{table} SET at = at - interval '1 hour' WHERE job_id = %s",  # noqa: S608
                [job_id],
            )
    connection.close()
    drives.make_due(job_id)


def assert_keeps_the_room(small: hotels.SmallHotel, booking: Booking) -> None:
    """Each night is taken once, by this booking's secured reservation and by no other."""
    assert small.taken() == [1, 1]
    living = Reservation.objects.filter(state__in=["held", "secured"])
    assert [(one.holder, one.state) for one in living] == [(holder(booking), "secured")]


# --- The hold expires under the payment, and another takes the room ------------------------------

STALLS: list[tuple[str, list[dict[str, Any]], list[tuple[str, int]]]] = [
    ("its payment goes through late", [], PAID_BACK),
    ("its card is refused late", [{"do": "refuse", "match": "capture"}], []),
]


@pytest.mark.parametrize(("_name", "then", "paid"), STALLS, ids=[one[0] for one in STALLS])
def test_the_first_comes_late_and_changes_nothing(
    provider: httpx2.Client,
    _name: str,
    then: list[dict[str, Any]],
    paid: list[tuple[str, int]],
) -> None:
    small = hotels.make(nights=2)
    first = book(small, "first")
    misbehave(provider, stalled(first))
    drives.drive_all()
    assert hotels.reservation(holder(first)).state == "held"
    hotels.expire(holder(first))
    second = book(small, "second")
    drives.drive_all()
    assert drives.state(second.job_id) == "confirmed"
    before = hotels.reservation(holder(first)).version, hotels.reservation(holder(second)).version

    misbehave(provider, *then)
    let_an_hour_pass(first.job_id)
    drives.drive_all()

    assert drives.state(first.job_id) == "compensated"
    assert effects(provider, first) == paid
    (undo,) = evidence(first.job_id, "reserve_room", "backward")
    assert (undo[0], undo[1]["stale"]) == ("confirmed", True)
    secured = [(o, e["reason"]) for o, e in evidence(first.job_id, "secure_room", "forward")]
    assert secured == ([("refused", "hold_lost")] if paid else [])
    assert hotels.reservation(holder(first)).state == "expired"
    assert effects(provider, second) == [("capture", 20_000), ("ticket", None)]
    assert_keeps_the_room(small, second)
    after = hotels.reservation(holder(first)).version, hotels.reservation(holder(second)).version
    assert after == before, "what came late wrote nothing"
    assert drives.drive_all() == 0


def test_a_charge_whose_reply_was_lost_is_paid_back_when_the_room_went(
    provider: httpx2.Client,
) -> None:
    """The charge had gone through while nobody knew: found by a later probe, and refunded whole."""
    small = hotels.make(nights=2)
    first = book(small, "first")
    misbehave(
        provider,
        {"do": "drop_after", "match": "capture", "subject": str(first.id)},
        stalled(first, "probe"),
    )
    drives.drive_all()
    assert effects(provider, first) == [("capture", 20_000)]
    hotels.expire(holder(first))
    second = book(small, "second")
    drives.drive_all()
    misbehave(provider)
    let_an_hour_pass(first.job_id)
    drives.drive_all()
    assert drives.state(first.job_id) == "compensated"
    assert effects(provider, first) == PAID_BACK
    assert_keeps_the_room(small, second)


def test_an_undo_that_gives_its_own_room_back_is_not_stale(provider: httpx2.Client) -> None:
    """The control of the above."""
    small = hotels.make(nights=2)
    first = book(small, "first")
    misbehave(provider, {"do": "refuse", "match": "ticket"})
    drives.drive_all()
    (undo,) = evidence(first.job_id, "reserve_room", "backward")
    assert undo[0] == "confirmed"
    assert "stale" not in undo[1]
    assert small.taken() == [0, 0]


# --- At the same time ----------------------------------------------------------------------------


def in_threads(*work: Callable[[], object]) -> list[object]:
    def closing(one: Callable[[], object]) -> object:
        try:
            return one()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(work)) as pool:
        return [f.result(JOIN_SECONDS) for f in [pool.submit(closing, one) for one in work]]


def drive_one_at_a_time() -> None:
    """The engine's loop with a pool of its own, as in a process of its own, that holds one job at a time."""
    run = engine.Run(Lane.FORWARD, pool=calls.Pool(1))
    run.claim()
    while run.held:
        run.renew()
        run.take_in()
        run.settle()
        run.run_locals()
        run.claim()
    run.end()


def test_two_trips_at_once_for_the_last_room(provider: httpx2.Client) -> None:
    small = hotels.make(nights=2)
    both = [book(small, "one"), book(small, "two")]
    meet, met = Barrier(2), list[int]()

    def wait_for_the_other(_point: str) -> None:
        if len(met) < 2:  # each driver's first local batch: reserve_room
            met.append(meet.wait(JOIN_SECONDS))

    with crashpoints.armed("local.before", wait_for_the_other):
        in_threads(drive_one_at_a_time, drive_one_at_a_time)
    drives.drive_all()

    assert sorted(met) == [0, 1], "two drivers met before they took the room"
    winner, loser = sorted(both, key=lambda one: drives.state(one.job_id))
    assert drives.state(winner.job_id) == "confirmed"
    assert drives.state(loser.job_id) == "refused"
    ((outcome, found),) = evidence(loser.job_id, "reserve_room", "forward")
    assert (outcome, found["reason"]) == ("refused", "no_room")
    assert found["data"]["holders"] == [holder(winner)]
    assert effects(provider, winner) == [("capture", 20_000), ("ticket", None)]
    assert effects(provider, loser) == []
    assert_keeps_the_room(small, winner)


def locked(handler: Callable[[Any], Outcome], call: Any) -> Callable[[], Outcome]:
    """The handler as a local batch runs it."""

    def run() -> Outcome:
        with transaction.atomic(durable=True):
            rooms.NIGHTS.lock(sorted(rooms.NIGHTS.keys(call.arguments)))
            return handler(call)

    return run


def one_after_another(*work: Callable[[], object]) -> list[object]:
    return [one() for one in work]


ORDERS = [
    (order, run) for order in permutations(range(3)) for run in (one_after_another, in_threads)
]


def test_expiry_securing_and_a_rival_in_any_order_leave_one_owner() -> None:
    small = hotels.make(nights=2)
    owners = Counter[str]()
    for n, (order, run) in enumerate(4 * ORDERS):
        mine, rival = f"mine-{n}", f"rival-{n}"
        rooms.hold(hotels.call(mine, small.stay()))
        hotels.pass_expiry(mine)
        later = hotels.held_by(mine, small.stay())
        work = [
            locked(rooms.secure, later),
            locked(rooms.hold, hotels.call(rival, small.stay())),
            lambda: rooms.expire_holds(100),
        ]
        run(*[work[i] for i in order])
        (owner,) = Reservation.objects.filter(state__in=["held", "secured"])
        assert small.taken() == [1, 1]
        assert (hotels.reservation(mine).state == "secured") == (owner.holder == mine)
        for undo in (rooms.release_if_secured, rooms.release_if_held):
            locked(undo, later)()
        assert small.taken() == ([1, 1] if owner.holder == rival else [0, 0])
        locked(rooms.release_if_held, hotels.held_by(rival, small.stay()))()
        assert small.taken() == [0, 0]
        owners[owner.holder.partition("-")[0]] += 1
    assert set(owners) == {"mine", "rival"}


def test_a_late_release_however_often_leaves_availability_as_it_was() -> None:
    """Released twice over, ten times at once, and again when another has the room."""
    small = hotels.make(nights=2)
    rooms.hold(hotels.call("a", small.stay()))
    release = locked(rooms.release_if_held, hotels.held_by("a", small.stay()))
    answers = [release(), release(), *in_threads(*[release] * 10)]
    assert small.taken() == [0, 0]
    rooms.hold(hotels.call("b", small.stay()))
    before = hotels.reservation("b").version
    answers += in_threads(*[release] * 10)
    assert [one.stale for one in answers if isinstance(one, Confirmed)] == [False] + [True] * 21
    assert len({one.ref for one in answers if isinstance(one, Confirmed)}) == 1
    assert small.taken() == [1, 1]
    assert (hotels.reservation("b").state, hotels.reservation("b").version) == ("held", before)


# --- The policy of waiting -----------------------------------------------------------------------


@pytest.fixture
def waited_for(provider: httpx2.Client) -> hotels.SmallHotel:
    small = hotels.make(nights=2)
    RoomType.objects.update(when_held="wait")
    return small


def hold_and_stall(provider: httpx2.Client, small: hotels.SmallHotel) -> tuple[Booking, Booking]:
    """The first trip holds the room and does not get on; the second has asked for it once."""
    first = book(small, "first")
    misbehave(provider, stalled(first))
    drives.drive_all()
    second = book(small, "second")
    drives.drive_all()
    assert drives.state(second.job_id) == "waiting"
    return first, second


def ask_again(booking: Booking, times: int) -> None:
    for _ in range(times):
        let_an_hour_pass(booking.job_id)
        drives.drive_all()


def test_a_trip_waits_for_a_held_room_and_gets_it(
    provider: httpx2.Client, waited_for: hotels.SmallHotel
) -> None:
    first, second = hold_and_stall(provider, waited_for)
    ask_again(second, 7)  # more often than it has attempts in its budget
    waits = evidence(second.job_id, "reserve_room", "forward")
    assert [outcome for outcome, _ in waits] == ["throttled"] * 8
    assert all(found["data"]["holders"] == [holder(first)] for _, found in waits)
    misbehave(provider, {"do": "refuse", "match": "capture", "subject": str(first.id)})
    let_an_hour_pass(first.job_id)
    drives.drive_all()
    ask_again(second, 1)
    assert drives.state(first.job_id) == "compensated"
    assert drives.state(second.job_id) == "confirmed"
    assert effects(provider, first) == []
    assert_keeps_the_room(waited_for, second)


def test_a_trip_waits_no_longer_than_it_may(
    provider: httpx2.Client, waited_for: hotels.SmallHotel
) -> None:
    first, second = hold_and_stall(provider, waited_for)
    ask_again(second, rooms.HOLD_WAITS)
    outcomes = [outcome for outcome, _ in evidence(second.job_id, "reserve_room", "forward")]
    assert outcomes == ["throttled"] * rooms.HOLD_WAITS + ["refused"]
    assert drives.state(second.job_id) == "refused"
    assert effects(provider, second) == []
    assert hotels.reservation(holder(first)).state == "held"
    assert waited_for.taken() == [1, 1]


def test_a_trip_that_waits_can_be_cancelled(
    provider: httpx2.Client, waited_for: hotels.SmallHotel
) -> None:
    first, second = hold_and_stall(provider, waited_for)
    assert turns.cancel(second.job_id, by="client", reason="a test")
    drives.drive_all()
    assert drives.state(second.job_id) == "refused"
    assert effects(provider, second) == []
    assert [one.holder for one in Reservation.objects.all()] == [holder(first)]
    assert waited_for.taken() == [1, 1]

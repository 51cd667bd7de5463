"""A stay that finds no room: what it is told about who keeps it, and whether it waits for a hold to end or fails."""

import io
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import IntegrityError, connection
from django.test import Client

from bookings import requests, rooms, rooms_sql
from bookings.models import Reservation, RoomNight, RoomType
from ledger.outcomes import Confirmed, Outcome, Refused, Throttled
from ledger.saga import Call
from tests import hotels

pytestmark = pytest.mark.usefixtures("database")


def make(**options: Any) -> hotels.SmallHotel:
    """A hotel whose rooms are waited for."""
    small = hotels.make(**options)
    RoomType.objects.update(when_held="wait")
    return small


def take(small: hotels.SmallHotel, holder: str, offset: int = 0, nights: int = 2) -> None:
    assert isinstance(rooms.hold(hotels.call(holder, small.stay(offset, nights))), Confirmed)


def nth(n: int, small: hotels.SmallHotel) -> Call:
    call = hotels.call("late", small.stay())
    return Call(call.operation_id, call.job_id, call.tenant, n, call.arguments, 5.0)


def ask(small: hotels.SmallHotel, *, n: int = 1) -> Outcome:
    """The late-comer's stay; it changes nothing unless it is granted."""
    before = small.taken()
    outcome = rooms.hold(nth(n, small))
    if not isinstance(outcome, Confirmed):
        assert small.taken() == before
        assert not Reservation.objects.filter(holder="late").exists()
    return outcome


def holders(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Refused | Throttled)
    found: list[str] = outcome.data["holders"]
    return found


def test_a_room_type_fails_unless_it_says_otherwise() -> None:
    small = hotels.make()
    take(small, "a")
    outcome = ask(small)
    assert isinstance(outcome, Refused)
    assert outcome.data == {"free": 0, "nights": 2, "holders": ["a"]}


def test_the_database_knows_two_policies() -> None:
    hotels.make()
    with pytest.raises(IntegrityError, match="bookings_roomtype_when_held_is_known"):
        RoomType.objects.update(when_held="perhaps")


def test_only_who_keeps_a_full_night_of_this_room_type_is_named() -> None:
    small, other = hotels.make(capacity=2, nights=40), hotels.make(code="OTHER")
    take(other, "elsewhere")
    take(small, "before", 2, 1)
    take(small, "one", 0, 1)
    take(small, "two", 0, 2)
    take(small, "gone", 1, 1)
    rooms.release_if_held(hotels.held_by("gone", small.stay(1, 1)))
    assert holders(ask(small)) == ["one", "two"]


def test_a_stay_of_the_greatest_length_is_seen_from_its_last_night() -> None:
    length = requests.NIGHTS_MAX
    small = hotels.make(nights=length + 1)
    take(small, "long", 0, length)
    outcome = rooms.hold(hotels.call("late", small.stay(length - 1, 2)))
    assert holders(outcome) == ["long"]
    assert isinstance(rooms.hold(hotels.call("next", small.stay(length, 1))), Confirmed)


def test_no_more_holders_than_a_few_are_named() -> None:
    small = hotels.make(capacity=rooms.HOLDERS_SHOWN + 5)
    for n in range(rooms.HOLDERS_SHOWN + 5):
        take(small, f"{n:02}")
    assert len(holders(ask(small))) == rooms.HOLDERS_SHOWN


def test_a_held_room_is_waited_for_and_its_holder_named(settings: Any) -> None:
    settings.HOLD_WAIT_SECONDS = 24.0
    small = make()
    take(small, "a")
    outcome = ask(small)
    assert isinstance(outcome, Throttled)
    assert (outcome.reason, outcome.after) == ("room_held", timedelta(seconds=2))
    assert holders(outcome) == ["a"]
    hotels.expire("a")
    assert isinstance(ask(small, n=2), Confirmed)


def test_waiting_ends_after_a_bounded_number_of_times() -> None:
    small = make()
    take(small, "a")
    assert isinstance(ask(small, n=rooms.HOLD_WAITS), Throttled)
    outcome = ask(small, n=rooms.HOLD_WAITS + 1)
    assert isinstance(outcome, Refused)
    assert (outcome.reason, holders(outcome)) == ("no_room", ["a"])


def test_no_time_to_wait_is_no_waiting(settings: Any) -> None:
    settings.HOLD_WAIT_SECONDS = 0.0
    small = make()
    take(small, "a")
    assert isinstance(ask(small), Refused)


def test_a_secured_room_is_not_waited_for() -> None:
    small = make()
    take(small, "secured", 1, 1)
    rooms.secure(hotels.held_by("secured", small.stay(1, 1)))
    take(small, "held", 0, 1)
    outcome = ask(small)
    assert isinstance(outcome, Refused)
    assert holders(outcome) == ["held", "secured"]


def test_one_hold_among_secured_rooms_is_waited_for() -> None:
    small = make(capacity=2)
    take(small, "secured")
    rooms.secure(hotels.held_by("secured", small.stay()))
    take(small, "held")
    outcome = ask(small)
    assert isinstance(outcome, Throttled)
    assert holders(outcome) == ["held", "secured"]


def test_a_night_without_rooms_is_not_waited_for() -> None:
    small = make()
    take(small, "a", 0, 1)
    RoomNight.objects.filter(night=small.first + timedelta(days=1)).update(capacity=0)
    outcome = ask(small)
    assert isinstance(outcome, Refused)
    assert holders(outcome) == ["a"]


def test_the_policy_is_declared_when_the_hotel_is_loaded() -> None:
    for options, policy in (([], "fail"), (["--when-held", "wait"], "wait"), ([], "wait")):
        call_command("load_hotel", *options, stdout=io.StringIO())
        assert set(RoomType.objects.values_list("when_held", flat=True)) == {policy}


def test_staff_see_who_keeps_a_night() -> None:
    small = make(nights=3)
    take(small, "a", 0, 2)
    User.objects.create_superuser("staff", password="x")
    client = Client()
    client.login(username="staff", password="x")
    page = client.get("/admin/bookings/roomnight/").content.decode()
    assert page.count('<td class="field-holders">a</td>') == 2
    assert page.count('<td class="field-holders">-</td>') == 1
    assert "wait" in client.get("/admin/bookings/roomtype/").content.decode()


def test_who_keeps_a_night_is_found_through_an_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        stay: dict[str, Any] = hotels.make().stay()
        bounds = {"longest": requests.NIGHTS_MAX, "most": 1}
        cursor.execute(f"EXPLAIN {rooms_sql.KEPT_BY}", {**stay, **bounds})
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("RESET enable_seqscan")
    assert "bookings_reservation_living" in plan

"""Holding, securing and giving back: all nights or none, never two owners, never given back twice."""

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F

from bookings import rooms, rooms_sql
from bookings.models import Reservation, RoomNight
from ledger.outcomes import Confirmed, Refused, Unknown
from tests import hotels

pytestmark = pytest.mark.usefixtures("database")


def test_a_hold_takes_every_night_of_the_stay_once() -> None:
    hotel = hotels.make(nights=4)
    first = rooms.hold(hotels.call("a", hotel.stay(1, 2)))
    again = rooms.hold(hotels.call("a", hotel.stay(1, 2)))
    assert isinstance(first, Confirmed)
    assert first.data["holder"] == "a"
    assert first == again
    assert hotel.taken() == [0, 1, 1, 0]
    assert Reservation.objects.count() == 1
    assert hotels.reservation("a").state == "held"


def test_one_full_night_refuses_the_whole_stay() -> None:
    hotel = hotels.make(nights=4)
    rooms.hold(hotels.call("a", hotel.stay(2, 1)))
    outcome = rooms.hold(hotels.call("b", hotel.stay(0, 4)))
    assert isinstance(outcome, Refused)
    assert outcome.reason == "no_room"
    assert hotel.taken() == [0, 0, 1, 0]
    assert not Reservation.objects.filter(holder="b").exists()


@pytest.mark.parametrize(
    "change",
    [{"nights": 11}, {"hotel": "OTHER"}, {"room_type": "other"}, {"arrival": "2001-01-01"}],
)
def test_a_night_that_is_not_there_is_refused(change: dict[str, object]) -> None:
    hotel = hotels.make(nights=10)
    outcome = rooms.hold(hotels.call("a", {**hotel.stay(), **change}))
    assert isinstance(outcome, Refused)
    assert outcome.reason == "no_such_night"
    assert hotel.taken() == [0] * 10
    assert not Reservation.objects.exists()


@pytest.mark.parametrize("taken", [-1, 2])
def test_the_database_refuses_a_night_beyond_its_capacity(taken: int) -> None:
    hotels.make(capacity=1)
    with pytest.raises(IntegrityError, match="bookings_roomnight_taken_is_within_capacity"):
        RoomNight.objects.update(taken=taken)


def test_releasing_gives_back_once_and_never_what_is_somebody_elses() -> None:
    hotel = hotels.make(nights=2)
    stay = hotel.stay()
    rooms.hold(hotels.call("a", stay))
    first = rooms.release_if_held(hotels.held_by("a", stay))
    rooms.hold(hotels.call("b", stay))
    again = rooms.release_if_held(hotels.held_by("a", stay))
    assert isinstance(first, Confirmed)
    assert not first.stale
    assert isinstance(again, Confirmed)
    assert again.stale
    assert hotel.taken() == [1, 1]
    assert hotels.reservation("b").state == "held"


def test_a_hold_lost_to_another_is_a_stale_undo_and_a_refused_secure() -> None:
    hotel = hotels.make(nights=2)
    stay = hotel.stay()
    rooms.hold(hotels.call("a", stay))
    hotels.expire("a")
    rooms.hold(hotels.call("b", stay))
    secured = rooms.secure(hotels.held_by("a", stay))
    released = rooms.release_if_held(hotels.held_by("a", stay))
    assert isinstance(secured, Refused)
    assert secured.reason == "hold_lost"
    assert isinstance(released, Confirmed)
    assert released.stale
    assert hotel.taken() == [1, 1]
    assert hotels.reservation("a").state == "expired"
    assert isinstance(rooms.secure(hotels.held_by("b", stay)), Confirmed)


def test_an_expired_hold_whose_nights_are_all_free_is_taken_again() -> None:
    hotel = hotels.make(nights=2)
    stay = hotel.stay()
    rooms.hold(hotels.call("a", stay))
    hotels.expire("a")
    assert hotel.taken() == [0, 0]
    assert isinstance(rooms.secure(hotels.held_by("a", stay)), Confirmed)
    assert hotel.taken() == [1, 1]
    assert hotels.reservation("a").state == "secured"


def test_an_expired_hold_is_not_taken_again_by_halves() -> None:
    hotel = hotels.make(nights=2)
    rooms.hold(hotels.call("a", hotel.stay()))
    hotels.expire("a")
    rooms.hold(hotels.call("b", hotel.stay(1, 1)))
    assert isinstance(rooms.secure(hotels.held_by("a", hotel.stay())), Refused)
    assert hotel.taken() == [0, 1]


def test_a_hold_past_its_time_is_secured_as_long_as_it_has_its_nights() -> None:
    hotel = hotels.make(nights=2)
    rooms.hold(hotels.call("a", hotel.stay()))
    hotels.pass_expiry("a")
    assert isinstance(rooms.secure(hotels.held_by("a", hotel.stay())), Confirmed)
    assert rooms.expire_holds(100) == 0
    assert hotel.taken() == [1, 1]


def test_securing_again_changes_nothing() -> None:
    hotel = hotels.make()
    rooms.hold(hotels.call("a", hotel.stay()))
    first = rooms.secure(hotels.held_by("a", hotel.stay()))
    version = hotels.reservation("a").version
    assert rooms.secure(hotels.held_by("a", hotel.stay())) == first
    assert hotels.reservation("a").version == version


def test_undoing_secure_leaves_the_hold_that_reserve_room_undoes() -> None:
    hotel = hotels.make(nights=2)
    later = hotels.held_by("a", hotel.stay())
    rooms.hold(hotels.call("a", hotel.stay()))
    rooms.secure(later)
    first = rooms.release_if_secured(later)
    again = rooms.release_if_secured(later)
    assert first == again
    assert isinstance(first, Confirmed)
    assert not first.stale
    assert hotels.reservation("a").expires_at is not None
    assert hotel.taken() == [1, 1]
    released = rooms.release_if_held(later)
    assert isinstance(released, Confirmed)
    assert not released.stale
    assert hotel.taken() == [0, 0]


def test_undoing_secure_after_the_room_was_given_up_is_stale() -> None:
    hotel = hotels.make(nights=2)
    later = hotels.held_by("a", hotel.stay())
    rooms.hold(hotels.call("a", hotel.stay()))
    hotels.expire("a")
    outcome = rooms.release_if_secured(later)
    assert isinstance(outcome, Confirmed)
    assert outcome.stale
    assert hotel.taken() == [0, 0]


def test_releasing_what_is_still_secured_is_in_doubt() -> None:
    hotel = hotels.make(nights=2)
    later = hotels.held_by("a", hotel.stay())
    rooms.hold(hotels.call("a", hotel.stay()))
    rooms.secure(later)
    assert isinstance(rooms.release_if_held(later), Unknown)
    assert hotel.taken() == [1, 1]
    assert hotels.reservation("a").state == "secured"


def test_undoing_what_is_not_in_our_books_is_in_doubt() -> None:
    hotel = hotels.make(nights=2)
    later = hotels.held_by("nobody", hotel.stay())
    assert isinstance(rooms.release_if_held(later), Unknown)
    assert isinstance(rooms.release_if_secured(later), Unknown)
    assert isinstance(rooms.secure(later), Refused)
    assert hotel.taken() == [0, 0]


def test_a_reservation_that_disagrees_with_its_nights_is_not_changed() -> None:
    hotel = hotels.make(nights=2)
    rooms.hold(hotels.call("a", hotel.stay()))
    RoomNight.objects.order_by("night")[0].delete()
    with pytest.raises(rooms.NightsDisagreeError), transaction.atomic():
        rooms.release_if_held(hotels.held_by("a", hotel.stay()))
    assert hotel.taken() == [1]
    assert hotels.reservation("a").state == "held"


@pytest.mark.parametrize(
    ("state", "statement"),
    [
        ("held", rooms_sql.RELEASE),
        ("held", rooms_sql.SECURE),
        ("secured", rooms_sql.BACK_TO_HELD),
        ("expired", rooms_sql.TAKE_AGAIN),
    ],
)
@pytest.mark.parametrize(("holder", "version"), [("a", 1), ("b", 2), ("a", 3)])
def test_a_change_that_names_another_holder_or_version_changes_nothing(
    state: str, statement: str, holder: str, version: int
) -> None:
    """Each statement guards itself, whatever was read before it."""
    hotel = hotels.make(nights=2)
    rooms.hold(hotels.call("a", hotel.stay()))
    Reservation.objects.update(
        state=state, version=2, expires_at=F("created_at") if state == "held" else None
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, {"holder": holder, "version": version, "seconds": 9})
        assert cursor.rowcount == 0
    assert (hotels.reservation("a").state, hotels.reservation("a").version) == (state, 2)
    assert hotel.taken() == [1, 1]


def test_arguments_are_the_stay_and_who_holds_it() -> None:
    hotel = hotels.make()
    stay = hotel.stay()
    request = type("Request", (), stay)
    assert rooms.stay_arguments(request, {}) == stay
    assert rooms.holder_arguments(request, hotels.done("a")) == {**stay, "holder": "a"}

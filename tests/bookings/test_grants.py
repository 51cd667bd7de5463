"""What the processes' database roles may do: enough for their work, and nothing beside it."""

import pytest
from django.contrib.auth.models import User
from django.db import ProgrammingError, connection, transaction
from django.test import Client

from bookings import rooms, submission
from bookings.models import ApiKey
from ledger import tenancy
from ledger.outcomes import Confirmed
from tests import hotels
from tests.conftest import Roles
from tests.hotels import tenant, wanted

pytestmark = pytest.mark.usefixtures("database")


def test_the_worker_holds_secures_and_releases(as_role: Roles) -> None:
    small = hotels.make()
    later = hotels.held_by("a", small.stay())
    with as_role("worker"):
        with transaction.atomic():
            rooms.NIGHTS.lock(sorted(rooms.NIGHTS.keys(small.stay())))
            assert isinstance(rooms.hold(hotels.call("a", small.stay())), Confirmed)
        assert isinstance(rooms.secure(later), Confirmed)
        assert isinstance(rooms.release_if_secured(later), Confirmed)
        assert isinstance(rooms.release_if_held(later), Confirmed)
        rooms.hold(hotels.call("b", small.stay()))
    hotels.pass_expiry("b")
    with as_role("worker"):
        assert rooms.expire_holds(10) == 1


def test_the_api_books(as_role: Roles) -> None:
    small, agent = hotels.make(), tenant()
    with as_role("api"), tenancy.of(agent.id):
        assert submission.book(agent, "key", wanted(small)).created
        assert not submission.book(agent, "key", wanted(small)).created


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("api", "UPDATE bookings_roomnight SET taken = 0"),
        ("api", "DELETE FROM bookings_booking"),
        ("api", "UPDATE bookings_booking SET amount_minor = 1"),
        ("api", "INSERT INTO bookings_apikey (id) VALUES ('x')"),
        ("api", "UPDATE bookings_apikey SET revoked = false"),
        ("api", "UPDATE auth_user SET is_superuser = true"),
        ("worker", "SELECT * FROM bookings_apikey"),
        ("worker", "UPDATE bookings_roomnight SET capacity = 99"),
        ("worker", "UPDATE bookings_reservation SET holder = 'me'"),
        ("worker", "DELETE FROM bookings_reservation"),
        ("worker", "INSERT INTO bookings_booking (id) VALUES (uuidv7())"),
        ("worker", "SELECT * FROM auth_user"),
        ("worker", "DELETE FROM bookings_booking"),
        ("retention", "DELETE FROM bookings_reservation"),
        ("retention", "UPDATE bookings_booking SET guest = ''"),
    ],
)
def test_everything_else_is_refused(as_role: Roles, name: str, statement: str) -> None:
    with (
        as_role(name),
        pytest.raises(ProgrammingError, match="permission denied"),
        transaction.atomic(),
    ):
        connection.cursor().execute(statement)


def test_staff_log_in_and_read_and_change_nothing(as_role: Roles) -> None:
    small, agent = hotels.make(), tenant()
    User.objects.create_superuser("staff", password="not-a-secret")
    submission.book(agent, "key", wanted(small))
    ApiKey.objects.create_key(tenant=agent, name="key")
    client = Client()
    with as_role("api"):
        assert client.login(username="staff", password="not-a-secret")
        for page in ("hotel", "roommonth", "roomnight", "reservation", "booking", "apikey"):
            listed = client.get(f"/admin/bookings/{page}/")
            assert listed.status_code == 200, page
            assert client.get(f"/admin/bookings/{page}/add/").status_code == 403, page
        booking = client.get("/admin/bookings/booking/").content.decode()
        assert "Add booking" not in booking
    key = ApiKey.objects.get()
    assert key.hashed_key not in client.get("/admin/bookings/apikey/").content.decode()
    change = client.post(f"/admin/bookings/apikey/{key.pk}/change/", {"revoked": "on"})
    assert change.status_code == 403
    key.refresh_from_db()
    assert not key.revoked

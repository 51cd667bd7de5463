"""One booking and one job a key; a refusal leaves no row; a key keeps its answer whatever changes later."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.db import connection, transaction

from bookings import prices, requests, submission
from bookings.models import Booking, RoomMonth
from ledger import crashpoints, outcomes
from ledger.outcomes import Money
from tests import hotels, psql
from tests.hotels import accepted_rows as rows
from tests.hotels import tenant, wanted

pytestmark = pytest.mark.usefixtures("database")


def test_a_request_becomes_one_booking_with_its_job() -> None:
    small = hotels.make()
    booked = submission.book(tenant(), "key", wanted(small, guest="Ada"))
    assert booked.created
    assert rows() == (1, 1, 1)
    stored = Booking.objects.get()
    job = apps.get_model("ledger", "Job").objects.get()
    assert (stored.id, stored.job_id) == (booked.booking.id, job.id)
    assert (job.saga, job.version, job.state) == ("bookings.trip", 1, "waiting")
    assert job.input == {
        **small.stay(),
        "amount_minor": 2 * hotels.RATE_MINOR,
        "currency": "EUR",
        "account": "agent",
        "subject": str(stored.id),
        "guest": "Ada",
    }
    assert (stored.amount_minor, stored.currency) == (2 * hotels.RATE_MINOR, "EUR")
    assert stored.created_at is not None


def test_the_same_key_gets_its_booking_whatever_has_changed_since() -> None:
    small = hotels.make()
    request = wanted(small, expected_total=Money(2 * hotels.RATE_MINOR, "EUR"))
    first = submission.book(tenant(), "key", request)
    RoomMonth.objects.update(rate_minor=77_777)
    again = submission.book(tenant(), "key", request)
    RoomMonth.objects.all().delete()
    once_more = submission.book(tenant(), "key", request)
    assert not again.created
    assert not once_more.created
    assert first.booking.id == again.booking.id == once_more.booking.id
    assert again.booking.amount_minor == 2 * hotels.RATE_MINOR
    assert rows() == (1, 1, 1)


def test_another_request_under_a_known_key_is_refused_naming_the_places() -> None:
    small = hotels.make()
    submission.book(tenant(), "key", wanted(small))
    with pytest.raises(outcomes.SubmissionConflict) as refused:
        submission.book(tenant(), "key", wanted(small, nights=3, guest="Secret"))
    assert sorted(refused.value.pointers) == ["/guest", "/nights"]
    assert "Secret" not in str(refused.value)
    assert rows() == (1, 1, 1)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"expected_total": Money(1, "EUR")}, prices.PriceMismatch),
        ({"hotel": "OTHER"}, prices.NotOffered),
        ({"room_type": "OTHER"}, prices.NotOffered),
        ({"arrival": "unsold"}, prices.NotOffered),
        ({"arrival": "past"}, prices.ArrivalOutOfRange),
    ],
)
def test_a_refused_request_leaves_no_row_and_its_key_usable(
    change: dict[str, Any], error: type[Exception]
) -> None:
    small = hotels.make()
    if "arrival" in change:
        days = {"past": -60, "unsold": 400}[change["arrival"]]
        change = {"arrival": small.first + timedelta(days=days)}
    with pytest.raises(error):
        submission.book(tenant(), "key", wanted(small, **change))
    assert rows() == (0, 0, 0)
    assert submission.book(tenant(), "key", wanted(small)).created


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"expected_total": Money(2 * hotels.RATE_MINOR, "EUR")},
        {"nights": 30},
        {"arrival": requests.HORIZON_DAYS},
        {"arrival": requests.HORIZON_DAYS + 1},
        {"arrival": 0},
        {"arrival": -1},
        {"nights": 30, "arrival": 190},  # the first of them are on sale
        {"hotel": "OTHER"},
        {"room_type": "OTHER"},
        {"expected_total": Money(2 * hotels.RATE_MINOR + 1, "EUR")},
        {"expected_total": Money(2 * hotels.RATE_MINOR, "USD")},
    ],
)
def test_what_the_statement_takes_for_an_offer_is_what_the_check_lets_pass(
    change: dict[str, Any],
) -> None:
    small = hotels.make(nights=100)
    if "arrival" in change:
        arrival = hotels.database_today() + timedelta(days=change["arrival"])
        change = {**change, "arrival": arrival}
        rate = {"rate_minor": hotels.RATE_MINOR, "capacity": 1}
        for day in (arrival, arrival + timedelta(days=1)):
            month = day.replace(day=1)
            small.room_type.months.get_or_create(month=month, defaults=rate)
    request = wanted(small, **change)
    offer = prices.offer(request)
    try:
        offer.check(request)
    except prices.RequestRefused:
        assert not offer.is_on_offer
    else:
        assert offer.is_on_offer


def test_a_key_that_is_being_used_speaks_before_the_price_that_has_changed_since() -> None:
    small, agent = hotels.make(), tenant()
    request = wanted(small, expected_total=Money(2 * hotels.RATE_MINOR, "EUR"))
    with psql.connected() as other:
        with transaction.atomic():
            first = submission._book(agent, "key", request)  # not committed yet
            other.execute("UPDATE bookings_roommonth SET rate_minor = 77777")
            second = psql.Thread(lambda: submission.book(agent, "key", request))
            psql.await_lock_wait(other)
        again = second.result()
    assert (again.id, again.created) == (first.id, False)
    assert rows() == (1, 1, 1)
    with pytest.raises(prices.PriceMismatch):
        submission.book(agent, "new", request)
    assert rows() == (1, 1, 1)


def test_one_statement_prices_the_stay_and_writes_all_of_it() -> None:
    small, agent = hotels.make(), tenant()
    sent: list[str] = []

    def note(execute: Any, statement: str, *rest: Any) -> Any:
        sent.append(statement)
        return execute(statement, *rest)

    with connection.execute_wrapper(note):
        submission.book(agent, "key", wanted(small))
    assert sent == [submission.ACCEPT]
    assert rows() == (1, 1, 1)


def test_the_same_key_of_two_tenants_is_two_bookings() -> None:
    small = hotels.make()
    one = submission.book(tenant("one"), "key", wanted(small))
    two = submission.book(tenant("two"), "key", wanted(small, nights=3))
    assert one.created
    assert two.created
    assert one.booking.id != two.booking.id
    assert rows() == (2, 2, 2)


def test_sixteen_at_once_with_one_key_make_one_booking() -> None:
    small, agent = hotels.make(), tenant()

    def book() -> tuple[UUID, bool]:
        try:
            booked = submission.book(agent, "key", wanted(small))
            return booked.booking.id, booked.created
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as pool:
        results = [future.result(30) for future in [pool.submit(book) for _ in range(16)]]
    assert len({booking for booking, _ in results}) == 1
    assert sum(created for _, created in results) == 1
    assert rows() == (1, 1, 1)


@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("booking.before_insert", 0),
        ("submit.before_insert", 0),
        ("submit.after_insert", 1),
        ("booking.before_response", 1),
    ],
)
def test_a_crash_at_any_point_leaves_all_or_nothing_and_the_same_key_goes_on(
    point: str, left: int
) -> None:
    small, agent = hotels.make(), tenant()

    def crash(name: str) -> None:
        raise crashpoints.CrashPointError(name)

    with crashpoints.armed(point, crash), pytest.raises(crashpoints.CrashPointError):
        submission.book(agent, "key", wanted(small))
    assert rows() == (left, left, left)
    again = submission.book(agent, "key", wanted(small))
    assert again.created is (left == 0)
    assert rows() == (1, 1, 1)


def test_a_booking_is_the_outermost_transaction() -> None:
    small, agent = hotels.make(), tenant()
    with transaction.atomic(), pytest.raises(AssertionError, match="is accepted when"):
        submission.book(agent, "key", wanted(small))
    assert rows() == (0, 0, 0)

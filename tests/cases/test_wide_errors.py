"""C59: whatever leaves a provider's handler is an outcome, and none of them is a reason to go on or to undo.

A soft time limit would raise in the middle of it, or of a COMMIT: there is none, and `manage.py check` refuses one.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded

import config.celery
from bookings import payments, rooms
from bookings import saga as booking
from config import checks
from ledger import outcomes, saga
from ledger.saga import Call
from tests import drives, sagas
from tests.cases import trips
from tests.cases.trips import PAID, REFUNDED, TICKETED, Stage


class WideError(BaseException):
    """No `except Exception` catches it."""


ERRORS = [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), WideError(), SoftTimeLimitExceeded()]
by_class = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


def ending_with(error: BaseException, handler: saga.Handler) -> saga.Handler:
    """The provider has done it when the handler ends so; later calls end as they should."""
    left = [error]

    def wrapped(call: Call) -> outcomes.Outcome:
        found = handler(call)
        if left:
            raise left.pop()
        return found

    return wrapped


@by_class
def test_a_wide_error_after_the_payment_is_unknown_and_nothing_follows_it(
    stage: Stage, settings: Any, error: BaseException
) -> None:
    settings.BACKOFF_SECONDS = 60.0
    do = ending_with(error, payments.capture)
    with trips.variant(payment={"do": do}) as definition:
        trip = stage.book(definition)
        stage.rules({"do": "error_before", "match": "probe", "times": 1})
        drives.drive_all()
        assert (trip.state(), trip.row().direction) == ("waiting", "forward")
        assert (trip.outcomes(), trip.requests()) == (["unknown"], ["capture", "probe"])
        assert trip.reservation().state == "held"
        trip.an_hour_later()
    assert (trip.state(), trip.effects()) == ("confirmed", [PAID, TICKETED])
    assert trip.requests().count("capture") == 1
    trip.agree()


@by_class
def test_a_wide_error_after_the_refund_is_unknown_and_looked_up(
    stage: Stage, error: BaseException
) -> None:
    undo = ending_with(error, payments.refund_if_captured)
    with trips.variant(payment={"undo": undo}) as definition:
        trip = stage.book(definition)
        stage.refuse_tickets()
        drives.drive_all()
    assert trip.outcomes(trips.BACKWARD) == ["unknown", "confirmed"]
    assert (trip.state(), trip.effects()) == ("compensated", [PAID, REFUNDED])
    assert trip.requests().count("refund") == 1
    trip.agree()


@pytest.mark.parametrize("error", [SystemExit(1), WideError()], ids=["SystemExit", "WideError"])
def test_a_wide_error_in_a_local_step_ends_the_worker_with_nothing_done(
    stage: Stage, error: BaseException
) -> None:
    """Effect and receipt are one transaction: it is taken back, and the next worker does it."""
    secure: Callable[[Call], outcomes.Outcome] = ending_with(error, rooms.secure)
    with sagas.registered(with_secure(secure)) as definition:
        trip = stage.book(definition)
        with pytest.raises(type(error)):
            drives.drive_all()
        assert trip.outcomes(step="secure_room") == []
        assert (trip.reservation().state, trip.effects()) == ("held", [PAID])
        trip.lose_owner()
        drives.drive_all()
    assert (trip.state(), trip.reservation().state) == ("confirmed", "secured")
    trip.agree()


def with_secure(do: saga.Handler) -> saga.Saga:
    steps = [replace(s, do=do) if s.name == "secure_room" else s for s in booking.trip.steps]
    return saga.Saga("cases.secure", version=1, input=booking.TripRequest, steps=steps)


def test_there_is_no_soft_time_limit() -> None:
    assert checks.soft_time_limits() == []


@pytest.mark.parametrize("where", ["of all tasks", "of one task"])
def test_a_soft_time_limit_is_refused(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    app = config.celery.app
    assert checks.soft_time_limits() == []  # and all tasks are bound to the settings as they are
    if where == "of all tasks":
        monkeypatch.setitem(app.conf, "task_soft_time_limit", 60)
    else:
        monkeypatch.setattr(app.tasks["ledger.drive"], "soft_time_limit", 60)
    [found] = checks.soft_time_limits()
    assert found.id == "config.E001"
    assert ("ledger.drive" in found.msg) == (where == "of one task")

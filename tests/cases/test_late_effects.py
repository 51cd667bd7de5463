"""C02, C03: what was given up still arrives. A late payment never survives its own undo, and a late worker changes nothing.

The request is held on the wire by the provider itself, and let through at the worst moment.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from ledger import calls, crashpoints, engine, models, turns
from tests import claims, drives, psql
from tests.cases import trips
from tests.cases.trips import PAID, REFUNDED, TICKETED, Stage, Trip

CALL_SECONDS = 0.5
LANDS_WITHIN = timedelta(seconds=1)  # the provider's word in the variant without tombstones
DUE = "SELECT due_at <= ledger_now() FROM ledger_job WHERE id = %s"


def cancel_under_way(trip: Trip) -> None:
    """The trip is cancelled while its payment is on the wire; drives as far as that leads."""
    accepted: list[bool] = []

    def cancel(_point: str) -> None:
        sent = models.Attempt.objects.filter(job_id=trip.job_id, step=trips.CAPTURE)
        if not accepted and sent.exists():
            trip.await_request("capture")
            accepted.append(turns.cancel(trip.job_id, by="guest", reason="changed plans"))

    with crashpoints.armed("settle.before", cancel):
        drives.drive_all()
    assert accepted == [True]


def test_the_undo_leaves_a_tombstone_and_the_late_payment_is_refused(stage: Stage) -> None:
    with trips.variant(call_seconds=CALL_SECONDS) as definition:
        trip = stage.book(definition)
        stage.hold("capture")
        cancel_under_way(trip)
    assert trip.requests() == ["capture", "probe", "tombstone"]
    assert trip.outcomes() == ["unknown", "refused"]
    assert trip.state() == "compensated"
    stage.release()
    assert (trip.effects(), stage.small.taken()) == ([], [0, 0])
    trip.agree()


@pytest.mark.parametrize("lands", [True, False])
def test_without_a_tombstone_nothing_ends_before_a_look_up_that_comes_late_enough(
    stage: Stage, *, lands: bool
) -> None:
    late: dict[str, Any] = {
        "tombstone": None,
        "request_lifetime": LANDS_WITHIN,
        "probe_lag": timedelta(),
    }
    with trips.variant(call_seconds=CALL_SECONDS, **late) as definition:
        trip = stage.book(definition)
        if lands:
            stage.hold("capture")
        else:
            stage.rules({"do": "drop_before", "match": "capture"})
        cancel_under_way(trip)
        assert (trip.state(), trip.requests()) == ("waiting", ["capture", "probe"])
        assert (trip.outcomes(), trip.reservation().state) == (["unknown"], "held")
        if lands:
            stage.release()
            assert trip.net() == trips.PRICE_MINOR
        with psql.connected() as session:
            psql.await_true(session, DUE, [trip.job_id])
        drives.drive_all()
    assert trip.state() == "compensated"
    assert trip.effects() == ([PAID, REFUNDED] if lands else [])
    assert trip.requests()[2:] == (["probe", "refund"] if lands else ["probe"])
    assert (trip.net(), stage.small.taken()) == (0, [0, 0])
    trip.agree()


@contextmanager
def paused_worker(trip: Trip) -> Iterator[Callable[[], object]]:
    """A worker stops between two turns with its payment on the wire; what is yielded lets it go on and waits for its end."""
    stopped, goes_on = threading.Event(), threading.Event()

    def stop(_point: str) -> None:
        sent = models.Attempt.objects.filter(job_id=trip.job_id, step=trips.CAPTURE)
        is_first = threading.current_thread() is not threading.main_thread()
        if is_first and not stopped.is_set() and sent.exists():
            trip.await_request("capture")
            stopped.set()
            assert goes_on.wait(2 * psql.WAIT_SECONDS), "nobody lets it go on"

    def go_on() -> object:
        goes_on.set()
        return worker.result()

    calls._pool = None  # each of the two workers has threads of its own
    with crashpoints.armed("settle.before", stop):
        worker = psql.Thread(lambda: engine.drive("forward"))
        try:
            assert stopped.wait(psql.WAIT_SECONDS), "it never came to its call"
            calls._pool = None
            yield go_on
        finally:
            goes_on.set()
            worker.join(psql.WAIT_SECONDS)


def refused(write: str) -> float:
    return REGISTRY.get_sample_value("ledger_stale_writes_total", {"write": write}) or 0.0


@pytest.mark.parametrize("finds_out", ["renew", "settle"])
def test_a_worker_that_comes_back_after_its_lease_writes_nothing_and_calls_nobody(
    stage: Stage, settings: Any, finds_out: str
) -> None:
    settings.HEARTBEAT_SECONDS = 0.0 if finds_out == "renew" else 10.0
    trip, counted = stage.book(), refused(finds_out)
    stage.hold("capture")
    with paused_worker(trip) as go_on:
        drives.expire_lease(trip.job_id)
        trips.sweep()
        drives.drive_all()  # another worker
        assert trip.state() == "confirmed"
        before, asked = claims.snapshot(trip.job_id), trip.requests()
        stage.release()  # the answer that the first one waits for
        go_on()
    assert refused(finds_out) == counted + 1
    assert (claims.snapshot(trip.job_id), trip.requests()) == (before, asked)
    assert asked.count("capture") == 2
    assert trip.effects() == [PAID, TICKETED]
    late = models.Sighting.objects.filter(job_id=trip.job_id, kind="late")
    assert {s.evidence["ref"] for s in late} <= {trip.final().evidence["ref"]}
    trip.agree()

"""An outside judge of the places that hand work on: due-work-harness finds commits and calls by itself, loses all tickets,
kills the worker after each commit and each call, fails each callback, refuses each publication, and compares what is left
with an undisturbed run.

Its counts are compared with ours, too: a declared crash point is reached right after every commit and every call it sees.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import transaction
from due_work_harness import HistoriesDiverged
from due_work_harness.crash_histories import assert_histories_converge, crash_histories
from due_work_harness.host import hosted

from ledger import crashpoints, tickets
from tests.oracle import delivery, handoffs
from tests.oracle.handoffs import History, Trip

pytestmark = [pytest.mark.usefixtures("oracle"), pytest.mark.timeout(120)]

Build = Callable[[Trip], History]
# What the harness finds in each place: (commits, calls, callbacks, publications). One more is a gap to look at.
PLACES: dict[Build, tuple[int, int, int, int]] = {
    handoffs.submitting: (1, 0, 1, 1),
    handoffs.settling: (6, 2, 0, 0),
    handoffs.compensating: (12, 3, 0, 1),
    handoffs.sweeping: (1, 0, 0, 2),
    handoffs.judging: (3, 0, 0, 3),
    handoffs.resolving: (1, 0, 1, 1),
}
LAPSED = (handoffs.judging, handoffs.resolving)


@pytest.fixture
def oracle(database: None, settings: Any) -> Iterator[None]:
    settings.BACKOFF_SECONDS = 0.0
    settings.HEARTBEAT_SECONDS = (
        10.0  # no second renewal on a slow machine: the harness counts commits
    )
    with hosted(delivery.host()):
        yield


@pytest.mark.parametrize(("build", "found"), PLACES.items())
def test_every_history_ends_where_an_undisturbed_run_does(
    build: Build, found: tuple[int, int, int, int]
) -> None:
    trip = Trip(lapses=build in LAPSED)
    with trip.registered():
        runs = crash_histories(delivery.Tickets(), build(trip))
    assert_histories_converge(build.__name__, runs)
    lost = runs[1]
    assert (lost.commits, lost.calls, lost.callbacks, lost.publications) == found
    assert len(runs) == 2 + sum(found)


def watched(build: Build) -> tuple[list[tuple[str, int]], list[bool]]:
    """An undisturbed run: each point with the commits that the harness had counted then, and whether each ring was heard
    inside a transaction.
    """
    trip = Trip(lapses=build in LAPSED)
    points: list[tuple[str, int]] = []
    rings: list[bool] = []
    with trip.registered(), ExitStack() as watching:
        history = build(trip)
        handle = history.arrange()
        worker = watching.enter_context(delivery.host().require("worker_killer")(None))
        inside = delivery.host().require("in_transaction")
        watching.enter_context(tickets.heard_by(lambda _lane: rings.append(inside())))
        for point in crashpoints.POINTS:
            watching.enter_context(
                crashpoints.armed(point, lambda name: points.append((name, worker.commits)))
            )
        history.transition(handle)
        points.append(("end", worker.commits))
    return points, rings


@pytest.mark.parametrize(("build", "found"), PLACES.items())
def test_a_declared_point_follows_every_commit_and_call_and_no_ring_is_in_a_transaction(
    build: Build, found: tuple[int, int, int, int]
) -> None:
    points, rings = watched(build)
    commits, calls, _, publications = found
    first = {count: name for name, count in reversed(points)}
    assert list(range(commits, -1, -1)) == list(dict.fromkeys(first))
    after = [first[count] for count in range(1, commits + 1)]
    assert [name for name in after if "after" not in name] == []
    assert [name for name, _ in points].count("call.after") == calls
    assert rings == [False] * publications


def test_a_provider_that_forgets_its_keys_is_found_out() -> None:
    trip = Trip()
    trip.books.is_forgetful = True
    with trip.registered():
        runs = crash_histories(delivery.Tickets(), handoffs.settling(trip))
    with pytest.raises(HistoriesDiverged, match="worker died after external call 1"):
        assert_histories_converge("settle", runs)


def test_a_ring_inside_a_transaction_is_heard_as_such() -> None:
    inside = delivery.host().require("in_transaction")
    rings: list[bool] = []
    with tickets.heard_by(lambda _lane: rings.append(inside())), transaction.atomic():
        tickets.ring("forward")
    assert rings == [True]

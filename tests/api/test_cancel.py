"""A cancel changes what the client saw or nothing; of a cancel and the point of no return one wins; twice is once."""

import itertools
import uuid
from contextlib import ExitStack
from typing import Any

import pytest

from bookings import submission
from bookings.models import Booking
from ledger import crashpoints, models
from tests import drives, hotels, psql
from tests.api.conftest import ApiClient
from tests.api.problems import assert_problem, without_instance
from tests.cases import trips
from tests.cases.trips import Stage, Trip

MOMENTS = 40  # more than a trip has
HOLDING = ("local.after_handlers",)  # where the run itself has the row
POINTS = [
    *("claim.before", "claim.after", "settle.before", "settle.after", "call.before", "call.after"),
    *("local.before", "local.after_handlers", "local.after", "promote.before", "promote.after"),
]


def cancel(api: Any, booking: str, tag: str | None = "*", body: Any = None) -> Any:
    headers = {} if tag is None else {"If-Match": tag}
    return api.send("POST", f"/v1/bookings/{booking}/cancel", body, headers)


def tag_of(api: Any, booking: str) -> str:
    return str(api.get(f"/v1/bookings/{booking}")["ETag"])


def untouched() -> bool:
    return not models.Job.objects.exclude(turned_by="").exists()


def test_a_booking_as_it_was_seen_goes_back(api: Any, body: dict[str, Any]) -> None:
    booking = api.book(body)
    response = cancel(api, booking, tag_of(api, booking), {"reason": "changed plans"})
    found = response.json()
    assert (response.status_code, found["state"], found["id"]) == (202, "compensating", booking)
    assert response["ETag"] == tag_of(api, booking)
    job = models.Job.objects.get()
    assert (job.direction, job.lane, job.turned_reason) == (
        "backward",
        "compensation",
        "changed plans",
    )
    assert job.turned_by == f"api key {api.row.prefix}"
    drives.drive_all()
    assert api.get(f"/v1/bookings/{booking}").json()["state"] == "refused"


def test_without_if_match_nothing_happens(api: Any, body: dict[str, Any]) -> None:
    booking = api.book(body)
    assert_problem(cancel(api, booking, None), 428)
    assert_problem(cancel(api, booking, "x"), 400, "If-Match")
    assert untouched()


@pytest.mark.parametrize("spelled", ['"old"', "W/{tag}", '"a", "b"'])
def test_a_stale_or_weak_tag_is_412_with_the_state_now(
    api: Any, body: dict[str, Any], spelled: str
) -> None:
    booking = api.book(body)
    tag = tag_of(api, booking)
    found = assert_problem(cancel(api, booking, spelled.format(tag=tag)), 412)
    assert found["current"] == {"state": "in_progress", "version": 0, "etag": tag}
    assert untouched()


def test_twice_is_one_cancel(api: Any, body: dict[str, Any]) -> None:
    booking = api.book(body)
    tag = tag_of(api, booking)
    first = cancel(api, booking, tag, {"reason": "first"})
    again = cancel(api, booking, tag, {"reason": "second"})
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert models.Job.objects.get().turned_reason == "first"


def test_sixteen_at_once_are_one_cancel(api: Any, body: dict[str, Any]) -> None:
    booking = api.book(body)
    tag = tag_of(api, booking)
    answers = psql.together(16, lambda n: cancel(api, booking, tag, {"reason": f"number {n}"}))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1


@pytest.mark.parametrize(
    "body_of",
    [
        {"reason": ""},
        {"reason": 1},
        {"why": "x"},
        {"reason": "x" * 201},
        [],
        "x",
        {"id": "x"},
        b"{",
        b"\xff",
    ],
)
def test_a_bad_body_is_400_and_cancels_nothing(
    api: Any, body: dict[str, Any], body_of: Any
) -> None:
    booking = api.book(body)
    assert_problem(cancel(api, booking, "*", body_of), 400)
    assert untouched()


def test_another_tenants_booking_is_as_unknown_as_none(
    api: Any, client_of: Any, body: dict[str, Any]
) -> None:
    booking, other = api.book(body), client_of("other")
    foreign = assert_problem(cancel(other, booking), 404)
    assert without_instance(foreign) == without_instance(
        assert_problem(cancel(other, str(uuid.uuid4())), 404)
    )
    assert_problem(cancel(other, "nonsense"), 404)
    assert untouched()


def test_a_key_that_only_reads_cancels_nothing(
    api: Any, client_of: Any, body: dict[str, Any]
) -> None:
    booking = api.book(body)
    assert_problem(cancel(client_of(scopes=["bookings:read"]), booking), 403)
    assert untouched()


def test_what_changes_while_the_cancel_waits_for_the_row_counts(
    api: Any, body: dict[str, Any]
) -> None:
    """The tag is compared under the lock: what its owner wrote just before is not overlooked."""
    booking = api.book(body)
    tag, job = tag_of(api, booking), Booking.objects.get().job_id
    with psql.connected() as watching, psql.connected(autocommit=False) as owner:
        owner.execute(
            "UPDATE ledger_job SET acting_fence = fence, seq = seq + 1 WHERE id = %s", [job]
        )
        asked = psql.Thread(lambda: cancel(api, booking, tag))
        psql.await_lock_wait(watching)
        owner.commit()
    found = assert_problem(asked.result(), 412)
    assert found["current"]["version"] == 1
    assert untouched()


def booked(stage: Stage, api: ApiClient, key: str) -> Trip:
    found = submission.book(api.tenant, key, hotels.wanted(stage.small)).booking
    return Trip(uuid.UUID(str(found.job_id)), str(found.id), stage.sandbox)


@pytest.mark.timeout(120)
def test_at_every_moment_of_a_trip_the_answer_comes_true(stage: Stage) -> None:
    """From before it is claimed to after it has ended, one trip for each gap that a run comes through."""
    api, said = ApiClient("agent"), []
    for moment in range(MOMENTS):
        trip = booked(stage, api, f"moment {moment}")
        answer = cancelled_at(moment, api, trip)
        said.append(answer.status_code)
        assert answer.status_code in (202, 409), answer.content
        assert (trip.net() == 0) == (answer.status_code == 202)
        ends = ("compensated", "refused") if answer.status_code == 202 else ("confirmed",)
        assert trip.state() in ends
        trip.agree()
    assert said == sorted(said), "once it is too late it stays too late"
    assert set(said) == {202, 409}


def cancelled_at(moment: int, api: ApiClient, trip: Trip) -> Any:
    """The answer to a cancel at this gap of a run, from a thread of its own, when the run has ended."""
    passed, asked = itertools.count(), list[psql.Thread[Any]]()

    def pass_gap(point: str) -> None:
        if next(passed) != moment:
            return
        asked.append(psql.Thread(lambda: cancel(api, trip.subject)))
        if point in HOLDING:
            with psql.connected() as watching:
                psql.await_lock_wait(watching)
        else:
            asked[0].result()

    with ExitStack() as armed:
        for point in POINTS:
            armed.enter_context(crashpoints.armed(point, pass_gap))
        drives.drive_all()
    answer = asked[0].result() if asked else cancel(api, trip.subject)
    drives.drive_all()
    return answer


def test_once_the_pivot_is_sent_it_is_409_with_the_state(stage: Stage) -> None:
    api = ApiClient("agent")
    trip = booked(stage, api, "key")
    stage.hold("ticket")
    worker = psql.Thread(lambda: drives.drive_alone("forward"))
    trip.await_request("ticket")
    found = assert_problem(cancel(api, trip.subject), 409)
    stage.release()
    worker.result()
    assert (found["current"]["state"], found["detail"]) == (
        "in_progress",
        "it is past the point where it could be undone",
    )
    assert trip.state() == "confirmed"
    assert untouched()


def test_parked_and_ended_are_409(stage: Stage) -> None:
    api = ApiClient("agent")
    ended, parked = booked(stage, api, "ended"), booked(stage, api, "parked")
    drives.drive_all()
    assert ended.state() == parked.state() == "confirmed"
    contradict(parked)
    assert assert_problem(cancel(api, ended.subject), 409)["current"]["state"] == "confirmed"
    found = assert_problem(cancel(api, parked.subject), 409)
    assert (found["current"]["state"], found["detail"]) == (
        "parked",
        "it is parked: a person decides",
    )
    assert untouched()


def contradict(trip: Trip) -> None:
    """Evidence turns up against what was settled, and the sweep parks the trip."""
    with psql.connected() as session:
        session.execute(
            "INSERT INTO ledger_sighting (job_id, step, direction, n, kind, outcome, evidence)"
            " VALUES (%s, 'capture_payment', 'forward', 1, 'probe', 'refused', '{}')",
            [trip.job_id],
        )
    trips.sweep()
    assert trip.state() == "parked"

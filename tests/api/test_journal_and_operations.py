"""What a client learns of the way of a booking: what is known, since when, what is not, and nothing of the inside."""

import json
import uuid
from typing import Any

import pytest

from bookings import submission
from bookings.api import booking_views
from ledger import crashpoints, models
from ledger.saga import Direction, operation_id
from tests import drives, hotels, psql
from tests.api.conftest import ApiClient
from tests.api.problems import assert_problem
from tests.cases.trips import Stage, Trip


@pytest.fixture
def agent(database: None) -> ApiClient:
    return ApiClient("agent")


def booked(stage: Stage, api: ApiClient) -> Trip:
    found = submission.book(api.tenant, "key", hotels.wanted(stage.small)).booking
    return Trip(uuid.UUID(str(found.job_id)), str(found.id), stage.sandbox)


def looked(api: ApiClient, trip: Trip, what: str = "") -> Any:
    response = api.get(f"/v1/bookings/{trip.subject}{what}")
    assert response.status_code == 200, response.content
    return response.json()


def by_name(api: ApiClient, trip: Trip) -> dict[tuple[str, str], Any]:
    found = looked(api, trip, "/operations")["operations"]
    return {(one["step"], one["direction"]): one for one in found}


def test_a_trip_that_went_well_is_all_known(stage: Stage, agent: ApiClient) -> None:
    trip = booked(stage, agent)
    assert looked(agent, trip, "/operations") == {"operations": []}
    drives.drive_all()
    found = by_name(agent, trip)
    assert [step for step, _ in found] == [
        "reserve_room",
        "capture_payment",
        "secure_room",
        "issue_ticket",
    ]
    for one in found.values():
        assert (one["known"]["outcome"], one["unknown"], one["blocks"]) == (
            "confirmed",
            None,
            False,
        )
        assert one["known"]["since"].endswith("Z")
    entries = looked(agent, trip, "/journal")["entries"]
    assert [e["at"] for e in entries] == sorted(e["at"] for e in entries)
    assert [(e["entry"], e["outcome"]) for e in entries if e["step"] == "capture_payment"] == [
        ("attempt", None),
        ("receipt", "confirmed"),
    ]


def test_what_nobody_saw_is_unknown_and_never_failed(stage: Stage, agent: ApiClient) -> None:
    """The answer is lost, and the provider, asked, does not answer."""
    trip = booked(stage, agent)
    stage.rules(
        {"do": "drop_after", "match": "capture"},
        {"do": "error_before", "match": "probe"},
    )
    drives.drive_all()
    one = by_name(agent, trip)["capture_payment", "forward"]
    assert (one["known"], one["blocks"]) == (None, False)
    assert one["unknown"]["sent_at"]
    shown = looked(agent, trip)
    assert (shown["outcome_known"], shown["class"], shown["state"]) == (
        False,
        "unknown_outcome",
        "in_progress",
    )


def test_what_holds_a_parked_booking_up_is_named(stage: Stage, agent: ApiClient) -> None:
    trip = booked(stage, agent)
    stage.refuse_tickets({"do": "refuse", "match": "refund"})
    drives.drive_all()
    assert trip.parked()[0] == "parked"
    found = by_name(agent, trip)
    assert [key for key, one in found.items() if one["blocks"]] == [("capture_payment", "backward")]
    assert found["issue_ticket", "forward"]["known"]["outcome"] == "refused"
    shown = looked(agent, trip)
    assert (shown["state"], shown["class"]) == ("parked", "compensation_pending")


def test_an_undo_that_was_refused_is_named_before_the_booking_parks(
    stage: Stage, agent: ApiClient
) -> None:
    """What comes after it is undone meanwhile."""
    trip = booked(stage, agent)
    stage.refuse_tickets({"do": "refuse", "match": "refund"})
    seen: list[tuple[str, bool]] = []

    def look(_point: str) -> None:
        shown, found = psql.Thread(lambda: (looked(agent, trip), by_name(agent, trip))).result()
        refund = found.get(("capture_payment", "backward"))
        if refund and refund["known"] and refund["known"]["outcome"] == "refused":
            seen.append((shown["state"], refund["blocks"]))

    with crashpoints.armed("local.before", look):
        drives.drive_all()
    assert seen == [("compensating", True)]


def test_nothing_of_the_inside_is_told(stage: Stage, agent: ApiClient) -> None:
    trip = booked(stage, agent)
    stage.refuse_tickets()
    drives.drive_all()
    text = "".join(
        json.dumps(looked(agent, trip, what)) for what in ("", "/journal", "/operations")
    )
    evidence = [r.evidence for r in models.Receipt.objects.filter(job_id=trip.job_id)]
    inside = {str(e["ref"]) for e in evidence if e.get("ref")} | {"none_left"}
    inside |= {
        str(trip.job_id),
        str(agent.tenant.id),
        operation_id(trip.job_id, "capture_payment", Direction.FORWARD),
    }
    inside |= {"fence", "lease", "owner", "evidence", "fingerprint", "Traceback"}
    assert len(inside) > 8
    assert {word for word in inside if word in text} == set()


def test_what_staff_did_is_told_without_who_and_why(stage: Stage, agent: ApiClient) -> None:
    trip = booked(stage, agent)
    job = models.Job.objects.get(id=trip.job_id)
    for act in ("done", "note", "take"):
        models.Resolution.objects.create(
            job_id=job.id, seq=job.seq, fence=job.fence, step="capture_payment", direction="forward",
            act=act, decided_by="ann", reason="secret words", evidence={"ref": "re_1"},
        )  # fmt: skip
    found = looked(agent, trip, "/journal")
    (entry,) = found["entries"]
    assert (entry["entry"], entry["outcome"], entry["n"]) == ("resolution", "done", None)
    assert not {"ann", "secret", "re_1"} & set(json.dumps(found).replace('"', " ").split())


def test_a_very_long_journal_is_cut_and_says_so(
    stage: Stage, agent: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    trip = booked(stage, agent)
    drives.drive_all()
    whole = looked(agent, trip, "/journal")
    monkeypatch.setattr(booking_views, "EVENTS_MAX", 3)
    cut = looked(agent, trip, "/journal")
    assert (whole["earlier_left_out"], cut["earlier_left_out"]) == (False, True)
    assert cut["entries"] == whole["entries"][-3:]


def test_another_tenants_are_not_there(stage: Stage, agent: ApiClient) -> None:
    trip = booked(stage, agent)
    other = ApiClient("other")
    for what in ("", "/journal", "/operations"):
        assert_problem(other.get(f"/v1/bookings/{trip.subject}{what}"), 404)

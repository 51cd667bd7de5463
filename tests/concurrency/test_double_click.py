"""One money action clicked many times at once: one resolution, at most one new attempt, and one refund."""

from typing import Any
from uuid import UUID

import pytest
from pytest_django.fixtures import Settings

from ledger import acts, models, outcomes, resolutions
from tests import drives, factories, psql, sagas, staff
from tests.admin import conftest as desks

pytestmark = pytest.mark.usefixtures("database")
CLICKS = 4


def stuck_refund(world: sagas.World, trip: Any) -> UUID:
    world.says("ticket:forward", sagas.raising(outcomes.Refused("sold_out")))
    world.says("payment:backward", sagas.raising(outcomes.NotSent("connection_refused")))
    job = factories.submit(trip, {"amount_minor": 12_000, "currency": "EUR"})
    drives.drive_all()
    return job


def fence(job: UUID) -> int:
    return models.Job.objects.get(id=job).fence


def settled_once(world: sagas.World, job: UUID, act: str) -> None:
    assert staff.resolved(job) == [("payment:backward", act, "sam")]
    assert len(staff.logged(job)) == 1
    drives.drive_all()
    assert drives.state(job) == "compensated"
    assert world.times("payment:backward") == (2 if act == "retry" else 1)


def test_the_same_form_from_many_connections(settings: Settings) -> None:
    settings.BACKOFF_SECONDS = 0.0
    world = sagas.World()
    with sagas.trip(world, undo_attempts=1) as trip:
        job = stuck_refund(world, trip)
        seen = fence(job)
        sessions = [desks.logged_in("sam") for _ in range(CLICKS)]

        def click(number: int) -> str:
            form = {"operation": "payment:backward"}
            return sessions[number].told(sessions[number].press(job, "retry", seen, **form))

        told = psql.together(CLICKS, click)
        assert sum("Recorded: retry payment:backward; the job" in page for page in told) == 1
        assert (
            sum("Refused: already requested: retry by sam" in page for page in told) == CLICKS - 1
        )
        settled_once(world, job, "retry")


@pytest.mark.parametrize("act", ["retry", "done"])
def test_the_same_command_from_many_terminals(settings: Settings, act: str) -> None:
    """Without a page that was seen: whoever comes later finds that the job is not parked any more."""
    settings.BACKOFF_SECONDS = 0.0
    world = sagas.World()
    with sagas.trip(world, undo_attempts=1) as trip:
        job, sam = stuck_refund(world, trip), staff.member("sam")

        def run(_number: int) -> str:
            try:
                return resolutions.act(job, staff.asked(act, sam), by=sam).act
            except acts.ActRefused as refused:
                return str(refused)

        said = sorted(psql.together(CLICKS, run))
        assert said.count(act) == 1
        assert all(act == s or "already requested" in s or "is not parked" in s for s in said)
        settled_once(world, job, act)


def test_two_people_who_act_at_once_on_one_job(settings: Settings) -> None:
    """One says that it was refunded by hand, one retries: whoever is second is refused, and there is one refund."""
    settings.BACKOFF_SECONDS = 0.0
    world = sagas.World()
    with sagas.trip(world, undo_attempts=1) as trip:
        job = stuck_refund(world, trip)
        seen, people = fence(job), [staff.member("ann"), staff.member("bob")]

        def run(number: int) -> bool:
            by = people[number]
            asked = staff.asked(("done", "retry")[number], by)
            try:
                resolutions.act(job, asked, by=by, seen=seen)
            except acts.MovedOn:
                return False
            return True

        assert sorted(psql.together(2, run)) == [False, True]
        assert models.Resolution.objects.filter(job_id=job).count() == 1
        drives.drive_all()
    assert drives.state(job) == "compensated"

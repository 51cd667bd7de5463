"""A job that is far past its deadline with its pivot sent: it parks for a person, and a retry sends it on, afresh."""

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest
from pytest_django.fixtures import Settings

from ledger import acts, crashpoints, leases, models, outcomes, resolutions, sql
from recovery import sweeps
from tests import claims, drives, factories, sagas, staff

HOUR = 3_600


@pytest.fixture(autouse=True)
def long_backoff(settings: Settings, database: None) -> None:
    settings.BACKOFF_SECONDS = 30.0


@pytest.fixture
def world() -> sagas.World:
    found = sagas.World()
    found.says("ticket:forward", sagas.raising(outcomes.NotSent("connection_refused")))
    return found


@pytest.fixture
def stuck(world: sagas.World) -> Iterator[UUID]:
    """Its pivot could not be sent as yet, may be sent again at any moment, and its deadline was 59 minutes ago."""
    with sagas.trip(world) as trip:
        id_ = factories.submit(trip)
        drives.drive_all()
        move(id_, f"deadline_at = ledger_now() - interval '{HOUR - 60} s', pivot_sent = true")
        assert drives.state(id_) == "waiting"
        yield id_


def move(id_: UUID, change: str) -> None:
    query = f"UPDATE ledger_job SET acting_fence = fence, {change} WHERE id = %s"  # noqa: S608
    sql.fetch(query, [id_])


def job(id_: UUID) -> models.Job:
    return models.Job.objects.get(id=id_)


def pass_term(id_: UUID) -> None:
    move(id_, "deadline_at = deadline_at - interval '2 min'")


def test_it_parks_as_a_whole_under_a_new_fence_once_its_time_is_over(stuck: UUID) -> None:
    before = job(stuck)
    assert sweeps.park_overdue().count == 0
    pass_term(stuck)
    assert [sweeps.park_overdue().count for _ in range(2)] == [1, 0]
    after = job(stuck)
    assert (after.state, after.parked_reason) == ("parked", "deadline_after_pivot")
    assert (after.fence, after.seq, after.direction) == (before.fence + 1, before.seq, "forward")
    assert after.parked_detail.startswith("its deadline was 20")


@pytest.mark.parametrize(
    "change",
    [
        "pivot_sent = false",
        "direction = 'backward'",
        "deadline_at = NULL",
        "deadline_at = deadline_at + interval '2 min'",
    ],
)
def test_no_other_job_is_touched(stuck: UUID, change: str) -> None:
    pass_term(stuck)
    move(stuck, change)
    before = claims.snapshot(stuck)
    assert sweeps.park_overdue().count == 0
    assert claims.snapshot(stuck) == before


def test_a_job_that_somebody_runs_is_left_to_its_owner(stuck: UUID) -> None:
    pass_term(stuck)
    drives.make_due(stuck)
    sweeps.promote()
    row = job(stuck)
    (claimed,) = leases.claim("forward", 1, [(row.saga, row.version)], leases.owner())
    before = claims.snapshot(stuck)
    assert sweeps.park_overdue().count == 0
    assert claims.snapshot(claimed.id) == before


def test_a_retry_gives_it_a_fresh_term_and_it_ends(stuck: UUID, world: sagas.World) -> None:
    pass_term(stuck)
    sweeps.park_overdue()
    seen = job(stuck)
    asked = acts.Asked(act="retry", by="sam", reason=staff.REASON)
    done = resolutions.act(stuck, asked, by=staff.member("sam", "supervisor"), seen=seen.fence)
    assert done.state == "waiting"
    after = job(stuck)
    assert after.deadline_at is not None
    assert seen.deadline_at is not None
    given = after.deadline_at - models.Resolution.objects.get().at
    assert abs(given - (seen.deadline_at - seen.created_at)) < timedelta(seconds=1)
    move(
        stuck, "deadline_at = ledger_now() + interval '1 hour'"
    )  # the term above had passed before it began
    assert sweeps.park_overdue().count == 0
    drives.drive_all()
    while drives.state(stuck) == "waiting":
        drives.make_due(stuck)
        assert drives.drive_all()
    assert drives.state(stuck) == "confirmed"
    assert world.times("ticket:forward") == 2


@pytest.mark.parametrize(("point", "parks"), [("overdue.before", False), ("overdue.after", True)])
def test_a_crash_around_it_leaves_it_parked_once_or_as_it_was(
    stuck: UUID, point: str, parks: bool
) -> None:
    pass_term(stuck)

    def crash(where: str) -> None:
        raise crashpoints.CrashPointError(where)

    with crashpoints.armed(point, crash), pytest.raises(crashpoints.CrashPointError):
        sweeps.park_overdue()
    assert drives.state(stuck) == ("parked" if parks else "waiting")
    assert sweeps.park_overdue().count == (0 if parks else 1)
    assert job(stuck).parked_reason == "deadline_after_pivot"

"""A sweep that goes on with a list it read earlier: what is on it gives no right, each row is looked at when it is written.

A row that is refused makes a sweep read a list and go through it job by job. Here one stands still after it has read its
list, the jobs on it move on in the hands of others, and then it goes on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import pytest
from pytest_django.fixtures import Settings

from ledger import leases, models, saga
from ledger.watch import Swept
from recovery import sweeps
from tests import claims, drives, psql, sagas, stops
from tests.recovery import test_sweeps_bad_rows as bad_rows

pytestmark = pytest.mark.usefixtures("worker_role")
ITS_LIST = 2  # the point is reached with the batch, and again with the first of the list


def renewed(job: UUID) -> None:
    """Its owner is late, and alive."""
    row = models.Job.objects.get(id=job)
    assert row.claim_token
    assert leases.renew([leases.Lease(job, row.fence, row.claim_token, row.seq)])


def ended_by_the_watcher(_job: UUID) -> None:
    assert leases.end_owner(leases.owner()) == {"forward": 1}
    drives.drive_all()


def swept(sweep: Callable[[], Swept]) -> Callable[[UUID], None]:
    """Another one was quicker, and what follows from it was done."""

    def work(_job: UUID) -> None:
        assert sweep().count == 1
        drives.drive_all()

    return work


def expired(trip: saga.Saga) -> UUID:
    """Of an owner of its own, but for the last."""
    for job in models.Job.objects.filter(owner=leases.owner()):
        claims.lose(job.id)
    return bad_rows.expired(trip)


@dataclass(frozen=True)
class Case:
    name: str
    point: str
    make: Callable[[saga.Saga], UUID]
    sweep: Callable[[], Swept]
    meanwhile: Callable[[UUID], None]


CASES = [
    Case("renewed", "reclaim.before", expired, sweeps.reclaim, renewed),
    Case("ended", "reclaim.before", expired, sweeps.reclaim, ended_by_the_watcher),
    *(
        Case(name, f"{point}.before", make, sweep, swept(sweep))
        for name, point, make, sweep in (
            ("deadlines", "turn", bad_rows.past_deadline, sweeps.expire_deadlines),
            ("overdue", "overdue", bad_rows.past_pivot, sweeps.park_overdue),
            ("promote", "promote", bad_rows.due, sweeps.promote),
            ("reconcile", "reconcile", bad_rows.contradicted, sweeps.reconcile),
            ("retain", "retain", bad_rows.long_ended, sweeps.retain),
        )
    ),
]


def stands(job: UUID) -> object:
    """The row, and how much its journal has; nothing, where it was removed."""
    return [*models.Job.objects.filter(id=job).values(), claims.rows(job)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_was_on_its_list_is_passed_over_when_it_has_moved_on(
    case: Case, settings: Settings
) -> None:
    settings.RETENTION_DAYS = 7
    world = sagas.World()
    with sagas.trip(world) as trip:
        bad, good = case.make(trip), case.make(trip)
        with bad_rows.refusing(bad), stops.at(case.point, nth=ITS_LIST) as (come, may_go):
            late = psql.Thread(case.sweep)
            assert come.wait(psql.WAIT_SECONDS)
            before = stands(good)
            case.meanwhile(good)
            after, called = stands(good), list(world.called)
            assert after != before
            may_go.set()
            assert late.result().count == 0
    assert (stands(good), world.called) == (after, called)


def test_and_is_done_when_it_has_not() -> None:
    """Control: it was held with the job on its list."""
    with sagas.trip(sagas.World()) as trip:
        bad, good = expired(trip), expired(trip)
        with bad_rows.refusing(bad), stops.at("reclaim.before", nth=ITS_LIST) as (come, may_go):
            late = psql.Thread(sweeps.reclaim)
            assert come.wait(psql.WAIT_SECONDS)
            assert drives.state(good) == "running"
            may_go.set()
            assert late.result().count == 1
    assert (drives.state(bad), drives.state(good)) == ("running", "queued")

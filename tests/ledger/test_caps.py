"""A tenant's cap bounds its running jobs and nobody else's; its weight is its share."""

from uuid import uuid4

import pytest

from ledger import leases, models, saga, selectors, shares, sql
from ledger.states import JobState
from tests import claims, drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")

AGE = "UPDATE ledger_job SET acting_fence = fence, due_at = due_at - interval '1 minute'"
STORM = """
INSERT INTO ledger_job (tenant_id, saga, version, input, lane)
SELECT %s, %s, 1, '{}', %s FROM generate_series(1, %s)
"""


@pytest.fixture
def trip() -> saga.Saga:
    with sagas.trip(sagas.World()) as definition:
        return definition


def storm(tenant: models.Tenant, trip: saga.Saga, count: int, lane: str = "forward") -> None:
    sql.fetch(STORM, [tenant.id, trip.name, lane, count])


def count(tenant: models.Tenant, state: str) -> int:
    return models.Job.objects.filter(tenant=tenant, state=state).count()


def capped(cap: int | None) -> models.Tenant:
    return factories.TenantFactory.create(running_cap=cap)


def test_what_is_over_the_cap_waits_and_the_others_go(trip: saga.Saga) -> None:
    small, free = capped(3), capped(None)
    storm(small, trip, 50)
    storm(free, trip, 20)
    assert shares.promote("forward") == 23
    assert (count(small, "queued"), count(small, "waiting"), count(free, "queued")) == (3, 47, 20)
    assert shares.promote("forward") == 0


def test_running_jobs_count_and_one_that_ends_lets_one_in(trip: saga.Saga) -> None:
    tenant = capped(3)
    storm(tenant, trip, 10)
    (first, *_) = claims.claim(trip, 2)
    assert (count(tenant, "running"), count(tenant, "queued")) == (2, 1)
    assert shares.promote("forward") == 0
    assert claims.settle(claims.write(first, state=JobState.CONFIRMED, checkpoint={}))
    assert shares.promote("forward") == 1
    assert (count(tenant, "running"), count(tenant, "queued")) == (1, 2)


def test_a_backlog_over_its_cap_holds_up_nobody(trip: saga.Saga) -> None:
    """It came first, and is more than a promotion reads."""
    small, free = capped(1), capped(None)
    storm(small, trip, 3_000)
    storm(free, trip, 5)
    assert shares.promote("forward") == 6
    assert count(free, "queued") == 5


def test_what_is_over_a_cap_is_neither_work_to_ring_for_nor_old(trip: saga.Saga) -> None:
    tenant = capped(2)
    storm(tenant, trip, 5)
    storm(tenant, trip, 1, "compensation")
    sql.fetch(AGE)
    assert selectors.oldest_runnable_seconds()["forward"] > 50
    claims.claim(trip, 2)
    ages = selectors.oldest_runnable_seconds()
    assert (ages["forward"], ages["compensation"] > 50) == (0, True)
    assert selectors.runnable_lanes() == ["compensation"]
    storm(capped(None), trip, 1)
    assert set(selectors.runnable_lanes()) == {"forward", "compensation"}


def test_many_who_promote_at_once_keep_it(trip: saga.Saga) -> None:
    tenant = capped(7)
    storm(tenant, trip, 60)

    def work(_number: int) -> list[leases.Claimed]:
        shares.promote("forward")
        return leases.claim("forward", 2, [trip.key], uuid4())

    psql.together(6, work)
    assert count(tenant, "running") + count(tenant, "queued") == 7


def test_a_cap_that_is_lifted_lets_all_in(trip: saga.Saga) -> None:
    tenant = capped(2)
    storm(tenant, trip, 30)
    assert shares.promote("forward") == 2
    with psql.connected() as owner:
        owner.execute("UPDATE ledger_tenant SET running_cap = NULL")
    assert shares.promote("forward") == 28


def test_what_goes_back_is_not_capped(trip: saga.Saga) -> None:
    tenant = capped(1)
    storm(tenant, trip, 4, "compensation")
    assert shares.promote("compensation") == 4


def test_all_of_a_capped_tenants_jobs_end() -> None:
    with sagas.trip(sagas.World()) as trip:
        tenant = capped(2)
        jobs = [factories.submit(trip, tenant=tenant) for _ in range(9)]
        drives.drive_all()
        assert {drives.state(job) for job in jobs} == {"confirmed"}


@pytest.mark.parametrize("cap", [None, 1_000])
def test_of_two_storms_the_heavier_gets_twice_as_much(trip: saga.Saga, cap: int | None) -> None:
    light, heavy = capped(cap), factories.TenantFactory.create(weight=2, running_cap=cap)
    storm(light, trip, 300)
    storm(heavy, trip, 300)
    names = [c.tenant for _ in range(15) for c in claims.claim(trip, 20)]
    ratio = names.count(heavy.name) / names.count(light.name)
    assert 1.8 <= ratio <= 2.2

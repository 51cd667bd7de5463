"""Ranks are stamped in fair order: no tenant's storm holds up another, idleness earns nothing, and promotion touches
neither fence nor seq.
"""

from typing import Any
from uuid import UUID

import pytest

from ledger import engine, models, saga, shares, sql
from tests import claims, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")

STORM = """
INSERT INTO ledger_job (tenant_id, saga, version, input, lane)
SELECT %s, %s, 1, '{}', 'forward' FROM generate_series(1, %s)
"""


@pytest.fixture
def trip() -> saga.Saga:
    with sagas.trip(sagas.World()) as definition:
        return definition


def storm(tenant: models.Tenant, trip: saga.Saga, count: int) -> None:
    sql.fetch(STORM, [tenant.id, trip.name, count])


def ranks(tenant: models.Tenant) -> list[float | None]:
    return list(
        models.Job.objects.filter(tenant=tenant).order_by("rank").values_list("rank", flat=True)
    )


def rank(job: UUID) -> float | None:
    return models.Job.objects.get(id=job).rank


def test_one_job_beside_a_thousand_of_another_tenant_goes_among_the_first(trip: saga.Saga) -> None:
    a, b = factories.TenantFactory.create(), factories.TenantFactory.create()
    storm(a, trip, 1_000)
    job = factories.submit(trip, tenant=b)
    assert shares.promote("forward") == 1_001
    assert ranks(a) == [float(n) for n in range(1, 1_001)]
    assert rank(job) == 1.0
    assert job in {c.id for c in claims.claim(trip, 2)}


def test_one_that_comes_during_the_storm_is_ranked_by_the_clock_and_not_behind_it(
    trip: saga.Saga,
) -> None:
    a, b = factories.TenantFactory.create(), factories.TenantFactory.create()
    storm(a, trip, 300)
    claims.claim(trip, 100)
    job = factories.submit(trip, tenant=b)
    shares.promote("forward")
    assert rank(job) == 101.0
    assert claims.claim(trip, 2)[0].tenant == a.name
    assert rank(job) == 101.0


def test_an_idle_tenant_gains_no_credit(trip: saga.Saga) -> None:
    busy, idle = factories.TenantFactory.create(), factories.TenantFactory.create()
    storm(idle, trip, 1)
    storm(busy, trip, 200)
    claims.claim(trip, 150)
    storm(idle, trip, 10)
    shares.promote("forward")
    clock = models.LaneClock.objects.get(lane="forward").clock
    assert ranks(idle)[1] == clock + 1
    assert [c.tenant for c in claims.claim(trip, 10)].count(busy.name) == 5


def test_two_storms_alternate(trip: saga.Saga) -> None:
    a, b = factories.TenantFactory.create(), factories.TenantFactory.create()
    storm(a, trip, 50)
    storm(b, trip, 50)
    names = [c.tenant for c in claims.claim(trip, 40)]
    assert (names.count(a.name), names.count(b.name)) == (20, 20)


def test_a_weight_is_a_share(trip: saga.Saga) -> None:
    a, b = factories.TenantFactory.create(), factories.TenantFactory.create(weight=3)
    storm(a, trip, 60)
    storm(b, trip, 60)
    names = [c.tenant for c in claims.claim(trip, 40)]
    assert (names.count(a.name), names.count(b.name)) == (10, 30)


def test_many_connections_gain_nothing(trip: saga.Saga) -> None:
    a, b = factories.TenantFactory.create(), factories.TenantFactory.create()

    def many(number: int) -> None:
        for _ in range(10):
            storm(b if number == 0 else a, trip, 1)
            shares.promote("forward")

    psql.together(8, many)
    shares.promote("forward")
    assert ranks(a) == [float(n) for n in range(1, 71)]
    assert ranks(b) == [float(n) for n in range(1, 11)]


def test_promotion_leaves_fence_seq_and_owner_alone(trip: saga.Saga) -> None:
    job = factories.submit(trip)
    before, _ = claims.snapshot(job)
    assert shares.promote("forward") == 1
    after, _ = claims.snapshot(job)
    changed = {name for name in before if before[name] != after[name]}
    assert (changed, after["state"]) == ({"state", "rank"}, "queued")


def test_a_promotion_is_bounded_and_the_next_goes_on(trip: saga.Saga) -> None:
    storm(factories.TenantFactory.create(), trip, 25)
    assert [shares.promote("forward", 10) for _ in range(4)] == [10, 10, 5, 0]


def test_another_lane_is_left_alone(trip: saga.Saga) -> None:
    job = factories.submit(trip)
    assert shares.promote("compensation") == 0
    assert rank(job) is None


HOLD = "SELECT pg_advisory_xact_lock(%s, hashtext('forward'))"


def test_one_promotes_at_a_time_and_the_next_waits_for_it(trip: saga.Saga) -> None:
    job = factories.submit(trip)
    with psql.connected(autocommit=False) as other, psql.connected() as watch:
        other.execute(HOLD, [shares.ADVISORY_CLASS])
        waiting = psql.Thread(lambda: shares.promote("forward"))
        psql.await_lock_wait(watch)
        assert rank(job) is None
        other.commit()
        assert waiting.result() == 1
    assert rank(job) == 1.0


def test_a_holder_of_another_lane_delays_nobody(trip: saga.Saga) -> None:
    factories.submit(trip)
    with psql.connected(autocommit=False) as other:
        other.execute(HOLD.replace("forward", "compensation"), [shares.ADVISORY_CLASS])
        assert shares.promote("forward") == 1


def test_a_holder_that_stays_too_long_fails_nobody_and_what_is_ranked_is_run(settings: Any) -> None:
    settings.LEASE_SECONDS = 3.0
    world = sagas.World()
    with sagas.trip(world) as trip, psql.connected(autocommit=False) as other:
        ranked = factories.submit(trip)
        shares.promote("forward")
        late = factories.submit(trip)
        other.execute(HOLD, [shares.ADVISORY_CLASS])
        engine.drive("forward")
        assert models.Job.objects.get(id=ranked).state == "confirmed"
        assert models.Job.objects.get(id=late).state == "waiting"
        other.commit()
        engine.drive("forward")
    assert models.Job.objects.get(id=late).state == "confirmed"

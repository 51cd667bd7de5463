"""A row of webhooks in somebody else's hands: who takes many leaves it for the next pass, who must have it waits with a
limit.
"""

import pytest
from django.db import OperationalError

from bookings.models import WebhookSecret
from bookings.webhooks import deliveries, endpoints
from ledger import models, sql
from tests import psql
from tests.webhooks import tenants
from tests.webhooks.tenants import Told

pytestmark = pytest.mark.usefixtures("database")


def test_an_event_is_left_for_the_next_pass(told: Told) -> None:
    for _ in range(2):
        told.park()
    busy = models.Event.objects.order_by("id").first()
    assert busy is not None
    sql.fetch("SET lock_timeout = '100ms'")
    with psql.connected(autocommit=False) as other:
        other.execute("SELECT 1 FROM ledger_event WHERE id = %s FOR UPDATE", [busy.id])
        assert deliveries.fan_out(10) == 1
        assert told.delivery().event_id != busy.id
        other.rollback()
    assert deliveries.fan_out(10) == 1
    assert len(told.deliveries()) == 2


def test_a_delivery_is_left_for_the_next_claim(told: Told) -> None:
    for _ in range(2):
        told.park()
    deliveries.fan_out(10)
    busy, free = told.deliveries()
    sql.fetch("SET lock_timeout = '100ms'")
    with psql.connected(autocommit=False) as other:
        row = "SELECT 1 FROM bookings_webhookdelivery WHERE id = %s FOR UPDATE"
        other.execute(row, [busy.id])
        assert [one.id for one in deliveries.claim(10, failing=False)] == [free.id]
        other.rollback()
    assert [one.id for one in deliveries.claim(10, failing=False)] == [busy.id]


@pytest.mark.parametrize("what", ["rotation", "answer"])
def test_an_endpoint_is_waited_for_with_a_limit_and_nothing_is_changed(
    told: Told, what: str
) -> None:
    told.park()
    tenants.send()
    told.park()

    def work() -> object:
        return endpoints.rotate(told.endpoint) if what == "rotation" else tenants.send()

    def stands() -> object:
        secrets = WebhookSecret.objects.order_by("id").values_list("id", "ends_at")
        return list(secrets), told.endpoint.succeeded_at

    before = stands()
    with psql.connected(autocommit=False) as other:
        row = "SELECT 1 FROM bookings_webhookendpoint WHERE id = %s FOR NO KEY UPDATE"
        other.execute(row, [told.endpoint_id])
        sql.fetch("SET lock_timeout = '100ms'")
        with pytest.raises(OperationalError) as met:
            work()
        assert sql.state_of(met.value) == "55P03"
        other.rollback()
    assert stands() == before
    tenants.make_due()
    work()
    assert stands() != before

"""Slow servers of one tenant keep no other tenant waiting, and however many claim at once, no more is out than may be."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from bookings.webhooks import deliveries, endpoints, sending
from ledger import shares, sql
from tests import psql
from tests.webhooks import tenants
from tests.webhooks.receivers import Handler, Receiver, status
from tests.webhooks.tenants import Told

pytestmark = pytest.mark.usefixtures("database")
ENDPOINTS, EVENTS = 5, 8
EARLIER = "UPDATE bookings_webhookdelivery SET due_at = due_at - interval '1 hour' WHERE id > %s"
TENANT_OF = "SELECT tenant_id FROM bookings_webhookendpoint WHERE id = %s"


def slow(handler: Handler) -> None:
    """Takes its time, and then says that it arrived: not a server that fails."""
    handler.receiver.released.wait(60)
    status(200)(handler)


@pytest.fixture
def greedy(told: Told, receiver: Receiver, settings: Settings) -> Told:
    """Another tenant, whose five endpoints each have eight events, older than any of `told`."""
    settings.WEBHOOK_SECONDS = 30
    other = Told(told.small, receiver, "/slow/0")
    for n in range(1, ENDPOINTS):
        endpoints.create(other.tenant.id, receiver.url(f"/slow/{n}"))
    for n in range(ENDPOINTS):
        receiver.says[f"/slow/{n}"] = slow
    for _ in range(EVENTS):
        other.park()
    deliveries.fan_out(100)
    return other


def arrived_slow(receiver: Receiver) -> int:
    return sum(one.path.startswith("/slow/") for one in receiver.got)


def tenants_of(claimed: list[deliveries.Claimed]) -> list[UUID]:
    return sorted(sql.fetch(TENANT_OF, [one.endpoint_id])[0][0] for one in claimed)


def test_slow_servers_of_one_tenant_keep_no_other_waiting(told: Told, greedy: Told) -> None:
    """They answer every time, so nothing says that they fail; the other tenant's event comes after all of theirs."""
    receiver, sender = told.receiver, sending.Sender()
    for _ in range(50):
        sender.run(0.2)
        if arrived_slow(receiver) == deliveries.OUT_OF_TENANT:
            break
    told.park()
    for _ in range(50):
        sender.run(0.2)
        if told.got:
            break
    assert len(told.got) == 1
    assert arrived_slow(receiver) == deliveries.OUT_OF_TENANT
    receiver.released.set()
    sender.run(20)
    assert arrived_slow(receiver) == ENDPOINTS * EVENTS
    assert greedy.endpoint.failures == 0


def test_what_is_free_goes_to_the_tenant_that_has_the_fewest_out(told: Told, greedy: Told) -> None:
    mine, theirs = told.tenant.id, greedy.tenant.id
    for _ in range(3):
        told.park()
    deliveries.fan_out(10)
    for _ in range(2):
        assert tenants_of(deliveries.claim(2, failing=False)) == sorted([mine, theirs])
    assert tenants_of(deliveries.claim(3, failing=False)) == sorted([mine, theirs, theirs])
    claimed = deliveries.claim(100, failing=False)
    assert tenants_of(claimed) == [theirs] * (deliveries.OUT_OF_TENANT - 4)


def test_of_a_tenants_failing_endpoints_few_are_out_and_its_others_do_not_keep_them_out(
    told: Told, greedy: Told
) -> None:
    sql.fetch(
        "UPDATE bookings_webhookendpoint SET failures = 1 WHERE tenant_id = %s AND url NOT LIKE %s RETURNING id",
        [greedy.tenant.id, "%/0"],
    )
    assert len(deliveries.claim(100, failing=False)) == deliveries.OUT_AT_ONCE
    failing = deliveries.claim(100, failing=True)
    assert len(failing) == deliveries.FAILING_OUT_OF_TENANT
    assert deliveries.claim(100, failing=True) == []


@contextmanager
def held_before_commit(claimed: Event, goes_on: Event) -> Iterator[None]:
    """A claim of this thread is made, and not committed until `goes_on`."""

    def hook(execute: Any, statement: str, params: Any, many: bool, context: Any) -> Any:
        found = execute(statement, params, many, context)
        if statement == deliveries.CLAIM:
            claimed.set()
            assert goes_on.wait(20)
        return found

    with connection.execute_wrapper(hook):
        yield


def test_two_that_claim_at_once_have_no_more_out_than_may_be(told: Told, greedy: Told) -> None:
    """The second finds other events before those that the first has taken: what was fanned out is committed late."""
    for _ in range(deliveries.OUT_AT_ONCE):
        told.park()
    deliveries.fan_out(100)
    last = max(one.id for one in told.deliveries())
    claimed, goes_on = Event(), Event()

    def first() -> list[deliveries.Claimed]:
        with held_before_commit(claimed, goes_on):
            return deliveries.claim(100, failing=False)

    thread = psql.Thread(first)
    assert claimed.wait(20)
    for one in (told, greedy):
        for _ in range(deliveries.OUT_AT_ONCE):
            one.park()
    deliveries.fan_out(100)
    sql.fetch(EARLIER, [last])
    at_once = deliveries.claim(100, failing=False)
    goes_on.set()
    taken = tenants_of([*thread.result(), *at_once, *deliveries.claim(100, failing=False)])
    assert taken.count(told.tenant.id) == deliveries.OUT_AT_ONCE
    assert taken.count(greedy.tenant.id) == deliveries.OUT_OF_TENANT


def test_a_pass_that_claims_nothing_leaves_it_to_the_next(told: Told) -> None:
    """Whoever claims may be frozen while it does; nobody waits for it, and the server ends it within a minute."""
    told.park()
    with psql.connected(autocommit=False) as other:
        other.execute(deliveries.CLAIMS_ALONE, [shares.ADVISORY_CLASS])
        assert tenants.send() == 0
        assert told.got == []
    assert tenants.send() == 1

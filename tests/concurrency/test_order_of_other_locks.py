"""Nights of rooms, limits of providers, webhooks and their endpoints are locked in one order, whatever order they are named
or lie in: while somebody waits for the first of them, it holds none of the later ones.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from bookings import rooms, submission
from bookings.models import RoomNight, WebhookDelivery, WebhookEndpoint
from bookings.webhooks import deliveries, egress
from bookings.webhooks.schedule import Schedule
from ledger import events, models, saga, sql
from tests import drives, factories, hotels, psql, sagas
from tests.webhooks import tenants

pytestmark = pytest.mark.usefixtures("database")
Work = Callable[[], object]
Made = tuple[list[Any], Work]


def nights() -> Made:
    """Of two hotels: their rows lie in the opposite order."""
    small = [hotels.make(code=code, nights=3) for code in ("B", "A")][::-1]
    ids = [night.pk for hotel in small for night in hotel.room_type.nights.order_by("night")]
    for pk in ids[::-1]:
        RoomNight.objects.filter(pk=pk).update(capacity=2)
    keys = sorted(key for hotel in small for key in rooms.NIGHTS.keys(hotel.stay(nights=3)))

    def lock() -> None:
        with transaction.atomic():
            rooms.NIGHTS.lock(keys)

    return ids, lock


def limits() -> Made:
    """A run with a job for each of two providers."""
    world, definitions = sagas.World(), []
    for name in ("b", "a"):
        models.Provider.objects.create(name=name, rate_per_second=1_000.0)
        effect = saga.Effect(provider=name, call_seconds=2.0, key_lifetime=timedelta(days=1))
        step = sagas.step(world, "post", effect=effect)
        definitions.append(saga.Saga(f"test.order.{name}", version=1, steps=[step]))

    def drive() -> None:
        with sagas.registered(definitions[0]), sagas.registered(definitions[1]):
            for definition in definitions:
                factories.submit(definition)
            drives.drive_alone("forward")

    return ["a", "b"], drive


def tries() -> tuple[list[Any], list[Any], Work]:
    """Of two endpoints: one answer each to keep, named in the opposite order."""
    small, tenant = hotels.make(capacity=5), hotels.tenant()
    ends = [
        WebhookEndpoint.objects.create(tenant=tenant, url=f"https://h{n}.example/")
        for n in range(2)
    ]
    with transaction.atomic():
        events.announce(tenant.id)
    sql.fetch(tenants.PARK, [submission.book(tenant, "key", hotels.wanted(small)).booking.job_id])
    deliveries.fan_out(1)
    claimed = sorted(deliveries.claim(2, failing=False), key=lambda one: one.id, reverse=True)
    for one in claimed:
        WebhookDelivery.objects.filter(pk=one.id).update(type="x")
    for end in ends[::-1]:
        WebhookEndpoint.objects.filter(pk=end.pk).update(failures=0)
    tried = [deliveries.Tried(one, egress.Answer(200), 0.1) for one in claimed]
    again = Schedule(timedelta(seconds=1), timedelta(seconds=2), lambda: 0.5)

    def store() -> None:
        for plan in ("indexscan", "bitmapscan"):  # an index would have its own order
            sql.fetch(f"SET enable_{plan} = off")
        deliveries.store(tried, again)

    return [one.id for one in claimed[::-1]], [end.pk for end in ends], store


def deliveries_of_tries() -> Made:
    ids, _, work = tries()
    return ids, work


def endpoints_of_tries() -> Made:
    _, keys, work = tries()
    return keys, work


@pytest.mark.parametrize(
    ("make", "table", "key"),
    [
        (nights, "bookings_roomnight", "id"),
        (limits, "ledger_provider", "name"),
        (deliveries_of_tries, "bookings_webhookdelivery", "id"),
        (endpoints_of_tries, "bookings_webhookendpoint", "id"),
    ],
)
def test_they_are_locked_in_one_order(make: Callable[[], Made], table: str, key: str) -> None:
    (first, *later), work = make()
    lock = f"SELECT 1 FROM {table} WHERE {key} = %s FOR NO KEY UPDATE"  # noqa: S608  names of this test's
    with psql.connected(autocommit=False) as other, psql.connected() as watch:
        other.execute(lock, [first])
        waiting = psql.Thread(work)
        psql.await_lock_wait(watch)
        got = [other.execute(f"{lock} NOWAIT", [one]).rowcount for one in later]
        assert got == [1] * len(later)
        other.commit()
        waiting.result()

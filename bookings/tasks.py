"""Beat's entries to the sweeps of `bookings`: they fetch nothing and decide nothing."""

from celery import shared_task

from bookings import rooms
from bookings.webhooks import sending
from ledger import watch

HOLDS_PER_SWEEP = 2_000


@shared_task(name="bookings.expire_holds")
def expire_holds() -> None:
    watch.run("bookings.expire_holds", _expire)


@shared_task(name="bookings.webhooks")
def webhooks() -> None:
    watch.run("bookings.webhooks", _webhooks)


def _webhooks() -> watch.Swept:
    return watch.Swept("webhooks", sending.sweep())


def _expire() -> watch.Swept:
    return watch.Swept("holds", rooms.expire_holds(HOLDS_PER_SWEEP))

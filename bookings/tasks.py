"""Beat's entry to the sweep of `bookings`: it fetches nothing and decides nothing."""

from celery import shared_task

from bookings import rooms
from ledger import watch

HOLDS_PER_SWEEP = 2_000


@shared_task(name="bookings.expire_holds")
def expire_holds() -> None:
    watch.run("bookings.expire_holds", _expire)


def _expire() -> watch.Swept:
    return watch.Swept("holds", rooms.expire_holds(HOLDS_PER_SWEEP))

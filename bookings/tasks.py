"""Beat's entry to the sweep of `bookings`: it fetches nothing and decides nothing."""

from celery import shared_task

from bookings import rooms

HOLDS_PER_SWEEP = 2_000


@shared_task(name="bookings.expire_holds")
def expire_holds() -> int:
    return rooms.expire_holds(HOLDS_PER_SWEEP)

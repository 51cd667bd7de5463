"""Beat's entries to the sweeps: interfaces, like views. `settings.SWEEPS` has their names and periods."""

from celery import shared_task

from ledger import watch
from recovery import sweeps


@shared_task(name="recovery.reclaim")
def reclaim() -> None:
    watch.run("recovery.reclaim", sweeps.reclaim)


@shared_task(name="recovery.deadlines")
def deadlines() -> None:
    watch.run("recovery.deadlines", sweeps.expire_deadlines)


@shared_task(name="recovery.reconcile")
def reconcile() -> None:
    watch.run("recovery.reconcile", sweeps.reconcile)


@shared_task(name="recovery.promote")
def promote() -> None:
    watch.run("recovery.promote", sweeps.promote)


@shared_task(name="recovery.ring")
def ring() -> None:
    watch.run("recovery.ring", sweeps.ring)


@shared_task(name="recovery.overdue")
def overdue() -> None:
    watch.run("recovery.overdue", sweeps.park_overdue)


@shared_task(name="recovery.unsupported")
def unsupported() -> None:
    watch.run("recovery.unsupported", sweeps.park_unsupported)


@shared_task(name="recovery.retain")
def retain() -> None:
    watch.run("recovery.retain", sweeps.retain)

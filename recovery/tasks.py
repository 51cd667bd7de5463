"""Beat's entries to the sweeps: interfaces, like views."""

from celery import shared_task

from recovery import sweeps


@shared_task(name="recovery.reclaim")
def reclaim() -> None:
    sweeps.reclaim()


@shared_task(name="recovery.deadlines")
def deadlines() -> None:
    sweeps.expire_deadlines()


@shared_task(name="recovery.reconcile")
def reconcile() -> None:
    sweeps.reconcile()


@shared_task(name="recovery.promote")
def promote() -> None:
    sweeps.promote()


@shared_task(name="recovery.ring")
def ring() -> None:
    sweeps.ring()

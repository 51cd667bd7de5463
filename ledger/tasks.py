"""The Celery entry of the ledger: an interface, like a view. It fetches nothing and decides nothing."""

from celery import shared_task

from ledger import engine, tickets


@shared_task(name=tickets.TASK)
def drive(lane: str) -> None:
    engine.drive(lane)

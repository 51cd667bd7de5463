"""How due-work-harness is told about this project: its tickets, its recovery, and a provider that keeps books.

The harness brings the faults and the verdict; nothing here decides what an outcome should be. Its Celery integration holds
the messages, so that no ticket reaches a broker; a ticket is delivered by running the task that it names.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import override
from uuid import uuid4

from due_work_harness import Host
from due_work_harness.integrations.celery import (
    Publication,
    celery_publication_breaker,
    held_publications,
)
from due_work_harness.integrations.django import django_host

from ledger import leases, outcomes, sql, tasks, tickets
from ledger.saga import Call
from recovery import sweeps
from tests import sagas

FLUSH_SECONDS = 5.0
LEASES_END = """
UPDATE ledger_job SET acting_fence = fence, lease_until = ledger_now() - interval '1 s' WHERE state = 'running'
"""


def host() -> Host:
    """The harness's own Django host. Its lifecycle proofs read QuerySets; our selections are SQL."""
    return django_host(
        production_packages={"ledger", "recovery"},
        publication_breaker=celery_publication_breaker,
        lifecycle_proofs=False,
    )


class Books(sagas.World):
    """A world that counts effects as an honest provider does: one for each operation id, however often it is sent. A
    forgetful one applies every request, whatever its id.
    """

    def __init__(self) -> None:
        super().__init__()
        self.effects: Counter[str] = Counter()
        self.refuses: set[str] = set()
        self.is_forgetful = False

    @override
    def handle(self, what: str) -> sagas.Answer:
        return lambda call: self.serve(what, call)

    def serve(self, what: str, call: Call) -> outcomes.Sighted:
        """The one way out, and so the seam after which a worker dies. A refusal is returned: only such calls are counted."""
        if what in self.refuses:
            return outcomes.Refused("sold_out")
        found = super().handle(what)(call)
        seen = self.effects[call.operation_id]
        self.effects[call.operation_id] = seen + 1 if self.is_forgetful else 1
        return found

    def of(self, job: object) -> dict[str, int]:
        """Effects of one job by `step:direction`."""
        mine = [(name, n) for name, n in self.effects.items() if name.startswith(str(job))]
        return {name.partition(":")[2]: n for name, n in sorted(mine)}


class Held:
    """One history's tickets. Whoever delivers or recovers is another process than the one that died."""

    can_lose = True

    def __init__(self, held: list[Publication]) -> None:
        self._held = held

    def deliver(self) -> None:
        become_another_process()
        while self._held:
            ticket = self._held.pop(0)
            assert ticket.task == tasks.drive.name
            tasks.drive(*ticket.args)
            tickets.flush(FLUSH_SECONDS)

    def lose(self) -> None:
        tickets.flush(FLUSH_SECONDS)
        self._held.clear()

    def recover(self) -> None:
        """One round of beat after the leases of the dead are over, then the tickets that it has rung for."""
        become_another_process()
        sql.fetch(LEASES_END)
        sweep()
        self.deliver()


class Tickets:
    """A `due_work_harness.Delivery`: what rings and sweeps are to the ledger."""

    name = "ledger"

    @contextmanager
    def session(self) -> Iterator[Held]:
        with held_publications() as held:
            become_another_process()
            yield Held(held)
            tickets.flush(FLUSH_SECONDS)  # nothing may be sent once nobody holds it


def sweep(_job: object = None) -> None:
    """Every sweep once. Each rings for itself, as a task of its own: rings of two are not coalesced."""
    for one in (
        sweeps.reclaim,
        sweeps.expire_deadlines,
        sweeps.reconcile,
        sweeps.promote,
        sweeps.ring,
    ):
        one()
        tickets.flush(FLUSH_SECONDS)


def become_another_process() -> None:
    tickets.flush(FLUSH_SECONDS)
    tickets._new_bell()
    leases.become(uuid4())

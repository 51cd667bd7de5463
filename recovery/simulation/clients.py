"""The clients: they submit, ask again with the same key, use a key for something else, and cancel. J is their journal.

What a client was told is kept as it was told: an answer that got lost is none, and the same key is sent again.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from ledger import outcomes, saga, submission, turns
from recovery.simulation.chronicle import Chronicle

ITEMS = ("attic", "cellar")


@dataclass(slots=True)
class Order:
    """One key and what it asks for; `told`: the jobs that answers named; `is_cancelled`: it was told so."""

    tenant: UUID
    key: str
    definition: saga.Saga
    request: dict[str, Any]
    deadline: timedelta | None
    told: list[UUID] = field(default_factory=list)
    is_cancelled: bool = False


class Clients:
    def __init__(
        self, draw: random.Random, chronicle: Chronicle, sagas: Sequence[saga.Saga]
    ) -> None:
        self._draw, self._chronicle = draw, chronicle
        tenants = [UUID(int=n + 1) for n in range(2)]
        self.orders = [self._order(i, tenants, sagas) for i in range(draw.randint(2, 4))]

    def _order(self, i: int, tenants: Sequence[UUID], sagas: Sequence[saga.Saga]) -> Order:
        draw = self._draw
        request = {"item": draw.choice(ITEMS), "amount_minor": 1_000 + i, "currency": "EUR"}
        deadline = timedelta(seconds=draw.uniform(1, 60)) if draw.random() < 0.15 else None
        definition = draw.choice(sagas)
        self._chronicle.count(f"shape:{definition.name}.{definition.version}")
        return Order(draw.choice(tenants), f"key-{i}", definition, request, deadline)

    def waiting(self) -> list[Order]:
        """Orders whose client has not heard of a job."""
        return [order for order in self.orders if not order.told]

    def submit(self, order: Order) -> None:
        with transaction.atomic(durable=True):
            submitted = submission.submit(
                tenant_id=order.tenant,
                key=order.key,
                saga=order.definition,
                request=order.request,
                input=order.request,
                deadline=order.deadline,
            )
        if order.told:
            self._chronicle.count("submitted_again")
        order.told.append(submitted.job_id)
        self._chronicle.note("told", order.key, submitted.job_id)

    def misuse(self, order: Order) -> None:
        """The same key for another amount: it must be refused, and nothing may come of it."""
        other = {**order.request, "amount_minor": order.request["amount_minor"] + 1}
        try:
            submission.submit(
                tenant_id=order.tenant,
                key=order.key,
                saga=order.definition,
                request=other,
                input=other,
            )
        except outcomes.SubmissionConflict as refused:
            self._chronicle.count("key_misuse_refused")
            if refused.pointers != ("/amount_minor",):
                self._chronicle.violate("S4", f"{order.key}: named {refused.pointers}")
        else:
            self._chronicle.violate("S4", f"{order.key} was taken for another amount")

    def cancel(self, order: Order) -> None:
        if turns.cancel(order.told[0], by="guest", reason="changed plans"):
            order.is_cancelled = True
            self._chronicle.count("cancelled")
        else:
            self._chronicle.count("cancel_refused")

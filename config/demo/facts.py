"""What has become of one booking, from three sides: the API, the database, the provider's books.

Kept here: a scene is true only if all three say so; each thing that is not as it should be is named.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from bookings import hotel_data
from bookings.models import Reservation, RoomNight
from config.demo import records
from config.demo.stage import Stage
from ledger import operations, saga, selectors
from ledger.saga import Direction
from recovery import clients

CAPTURE = "capture_payment"
Effect = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Facts:
    """`effects` are (kind, amount in minor units), in the order in which the provider made them."""

    api: clients.Answer
    job_id: UUID
    db_state: str
    leases_lost: int
    journal: Mapping[operations.Key, operations.Operation]
    requests: list[dict[str, Any]]
    effects: list[Effect]

    @property
    def price(self) -> int:
        amount: int = self.api.body["price"]["amount_minor"]
        return amount

    def forward(self, step: str) -> operations.Operation:
        return self.journal.get((step, Direction.FORWARD), operations.Operation())

    def backward(self, step: str) -> operations.Operation:
        return self.journal.get((step, Direction.BACKWARD), operations.Operation())

    def problems(self, state: str, effects: list[Effect]) -> list[str]:
        """What is not as in a booking that ended so, with exactly these effects at the provider."""
        says = self.api.body.get("state")
        found = [] if says == state else [f"the API says {says}, not {state}"]
        if self.db_state != state:
            found.append(f"the database says {self.db_state}, not {state}")
        if self.api.body.get("outcome_known") is not True:
            found.append("the API does not call the outcome known")
        if self.effects != effects:
            found.append(f"the provider's books say {self.effects}, not {effects}")
        return found


def of(stage: Stage, stay: hotel_data.Stay, booking_id: str) -> Facts:
    job_id, state, lost = records.read_job(booking_id)
    return Facts(
        api=stage.api.look(stage.tokens[stay.tenant], booking_id),
        job_id=job_id,
        db_state=state,
        leases_lost=lost,
        journal=operations.fold(selectors.entries(job_id)),
        requests=stage.sandbox.requests(booking_id),
        effects=[(e["kind"], e["amount_minor"]) for e in stage.sandbox.effects(booking_id)],
    )


def rooms_taken(stay: hotel_data.Stay) -> list[int]:
    """How many rooms of the stay's type are taken, night by night."""
    nights = RoomNight.objects.filter(
        room_type__hotel__code=hotel_data.HOTEL,
        room_type__code=stay.room_type,
        night__in=list(stay.dates()),
    )
    return list(nights.order_by("night").values_list("taken", flat=True))


def hold_of(booking_id: str) -> str:
    """The state of the reservation that a booking made."""
    job_id, _, _ = records.read_job(booking_id)
    holder = saga.operation_id(job_id, "reserve_room", Direction.FORWARD)
    return Reservation.objects.get(holder=holder).state


def is_stale(undo: operations.Operation) -> bool:
    """It is settled and changed nothing: what it was to give back had been given up."""
    return (
        undo.is_confirmed() and undo.final is not None and undo.final.evidence.get("stale") is True
    )


def expect(found: list[str], *, holds: bool, otherwise: str) -> None:
    """Note what is wrong unless it holds."""
    if not holds:
        found.append(otherwise)

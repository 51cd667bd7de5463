"""What happens on a trip: hold a room, capture the payment, secure the room, issue the ticket; each undo beside its do.

Nobody is charged without a room: the hold may expire while the payment is under way, and then securing it is refused
and the payment is refunded. The ticket is the pivot: once it may have been asked for, the trip only goes forward.
"""

from dataclasses import dataclass

from bookings import payments, rooms, tickets
from ledger import saga
from ledger.saga import LOCAL, NotUndoable, Step


@dataclass(frozen=True, slots=True)
class TripRequest:
    """The input of a trip, as its job stores it. `account` is the tenant's name, `subject` the booking's id."""

    hotel: str
    room_type: str
    arrival: str
    nights: int
    amount_minor: int
    currency: str
    account: str
    subject: str
    guest: str


trip = saga.register(
    saga.Saga(
        "bookings.trip",
        version=1,
        input=TripRequest,
        steps=[
            Step("reserve_room", do=rooms.hold, undo=rooms.release_if_held,
                 arguments=rooms.stay_arguments, undo_arguments=rooms.holder_arguments,
                 effect=LOCAL, rows=rooms.NIGHTS),
            Step("capture_payment", do=payments.capture, undo=payments.refund_if_captured,
                 arguments=payments.capture_arguments, undo_arguments=payments.refund_arguments,
                 effect=payments.EFFECT),
            Step("secure_room", do=rooms.secure, undo=rooms.release_if_secured,
                 arguments=rooms.holder_arguments, undo_arguments=rooms.holder_arguments,
                 effect=LOCAL, rows=rooms.NIGHTS),
            Step("issue_ticket", do=tickets.issue, undo=NotUndoable("last step"),
                 arguments=tickets.issue_arguments, effect=tickets.EFFECT, pivot=True),
        ],
    )
)  # fmt: skip

"""What a client may ask for, once validated: the meaning of a request, whatever its spelling was. Pure.

`as_json` is what the submission's fingerprint is taken over, so its members never change their meaning.
"""

from dataclasses import dataclass
from datetime import date
from typing import Any

from ledger.outcomes import Money

NIGHTS_MAX = 30
HORIZON_DAYS = 1_000  # how far ahead of the hotel's today an arrival may lie


@dataclass(frozen=True, slots=True)
class ValidatedRequest:
    """A stay that a client wants; `expected_total`, where given, must be our price."""

    hotel: str
    room_type: str
    arrival: date
    nights: int
    guest: str = ""
    client_reference: str = ""
    expected_total: Money | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "hotel": self.hotel,
            "room_type": self.room_type,
            "arrival": self.arrival.isoformat(),
            "nights": self.nights,
            "guest": self.guest,
            "client_reference": self.client_reference,
            "expected_total": self.expected_total.as_json() if self.expected_total else None,
        }

"""What a webhook says and how it is signed: Standard Webhooks, version 1. Pure.

The promise: the id and the body of an event are the same on every try, the timestamp and the signature are fresh, and the
body is thin: whoever wants to know more asks the API with a key, so that a URL in wrong hands tells little.
"""

import base64
import json
import secrets
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from standardwebhooks import webhooks as standard

from ledger import states
from ledger.events import Event
from ledger.saga import Direction
from ledger.states import JobState

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def kind_of(event: Event) -> str:
    return f"booking.{_state(event)}"


def body_of(event: Event, booking_id: UUID) -> str:
    """The state is the one that clients see, as it was right after the event."""
    said = {
        "type": kind_of(event),
        "timestamp": event.at.isoformat().replace("+00:00", "Z"),
        "data": {
            "booking_id": str(booking_id),
            "job_id": str(event.job_id),
            "state": _state(event),
            "version": event.seq,
        },
    }
    return json.dumps(said, separators=(",", ":"))


def headers_of(
    event_id: UUID, body: str, *, at: datetime, secrets_: Sequence[str]
) -> dict[str, str]:
    """One signature per secret that is valid now, so that a receiver may change its own at any time of a rotation."""
    assert secrets_, "an endpoint always has a secret"
    signatures = [standard.Webhook(secret).sign(str(event_id), at, body) for secret in secrets_]
    return {
        "content-type": "application/json",
        "user-agent": "amends",
        "webhook-id": str(event_id),
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def _state(event: Event) -> str:
    is_backward = event.direction is Direction.BACKWARD
    return str(states.for_client(JobState(event.state), is_backward=is_backward))

"""What clients send and see of webhooks, member by member: no secret, no answer of a server, nobody else's id."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from bookings.api import faults, limits, representations
from bookings.api.serializers import ClosedSerializer, StrictString, members
from bookings.models import WebhookDelivery, WebhookEndpoint
from bookings.webhook_tables import URL_LENGTH
from bookings.webhooks import addresses, egress, endpoints

MADE = "webhooks-made"


class EndpointRequest(ClosedSerializer):
    """The body of POST /v1/webhooks."""

    url = StrictString(length=URL_LENGTH)


def url_of(body: Any) -> str:
    return str(members(EndpointRequest, body)["url"])


@contextmanager
def refusals() -> Iterator[None]:
    """Within the block, what the domain refuses becomes a problem document."""
    try:
        yield
    except addresses.Refused as refused:
        raise faults.invalid("/url", refused.code, f"the URL {refused.detail}") from refused
    except endpoints.AlreadyThere as known:
        detail = f"/v1/webhooks/{known.endpoint_id} has this URL; a new secret can be made there"
        places = [faults.fault("/url", "taken", "an enabled endpoint has this URL")]
        raise faults.Problem(HTTPStatus.CONFLICT, "conflict", detail, places) from known
    except endpoints.TooMany as many:
        detail = f"at most {endpoints.ENDPOINTS_MAX} endpoints are enabled at a time"
        raise faults.Problem(HTTPStatus.CONFLICT, "too-many", detail) from many
    except endpoints.TooManyToday as many:
        detail = f"at most {endpoints.MADE_MAX} endpoints are made in a day, with those that ended"
        raise limits.exceeded(MADE, detail, many.seconds) from many
    except endpoints.Busy as busy:
        detail = "other names are being looked up; the same request may be sent again"
        raise faults.Problem(
            HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", detail, retry_after=math.ceil(egress.LOOK_UP_SECONDS),
        ) from busy  # fmt: skip
    except endpoints.Disabled as ended:
        detail = "the endpoint has ended; make a new one"
        raise faults.Problem(HTTPStatus.CONFLICT, "disabled", detail) from ended


def endpoint(found: WebhookEndpoint) -> dict[str, Any]:
    own = f"/v1/webhooks/{found.id}"
    return {
        "id": str(found.id),
        "url": found.url,
        "enabled": found.disabled_at is None,
        "disabled_at": representations.instant_or_none(found.disabled_at),
        "disabled_reason": found.disabled_reason or None,
        "failures_in_a_row": found.failures,
        "succeeded_at": representations.instant_or_none(found.succeeded_at),
        "created_at": representations.instant(found.created_at),
        "links": {"self": own, "deliveries": f"{own}/deliveries"},
    }


def delivery(found: WebhookDelivery, of: WebhookEndpoint) -> dict[str, Any]:
    """`id` is the `webhook-id` that was sent."""
    return {
        "id": str(found.event_id),
        "type": found.type,
        "booking_id": str(found.booking_id),
        "status": _status(found, of),
        "attempts": found.attempts,
        "next_try_at": representations.instant_or_none(found.due_at)
        if of.disabled_at is None
        else None,
        "delivered_at": representations.instant_or_none(found.delivered_at),
        "created_at": representations.instant(found.created_at),
        "tries": found.tries,
    }


def _status(found: WebhookDelivery, of: WebhookEndpoint) -> str:
    if found.delivered_at is not None:
        return "delivered"
    if found.given_up_at is not None:
        return "given_up"
    return "pending" if of.disabled_at is None else "stopped"

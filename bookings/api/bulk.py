"""POST /v1/bookings/bulk: many bookings in one request, each with its own key and its own answer.

The promise: an item gets what a request of its own would have got, whatever its neighbours get, and sending the whole again
is safe. The request fails as a whole only where it has no items to speak of.
"""

from http import HTTPStatus
from typing import Any, ClassVar, override

from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from bookings import submission
from bookings.api import admission, auth, idempotency, parsers, problems, representations
from bookings.api.resource import Resource
from bookings.api.serializers import BookingRequest, ClosedSerializer, members, request_of
from bookings.models import Scope
from bookings.submission import Booked, Wanted

ITEMS_MAX = 500
BYTES_MAX = 1024 * 1024


class Key(serializers.Field[str, Any, str, Any]):
    """A key as a JSON string: what the header Idempotency-Key says, without quotes around it."""

    default_error_messages = {"key_malformed": "must be 1 to 255 visible ASCII characters"}

    @override
    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or not idempotency.VISIBLE.fullmatch(data):
            self.fail("key_malformed")
        return data


class Items(serializers.Field[list[Any], Any, list[Any], Any]):
    """An array of 1 to ITEMS_MAX items, whatever they are: each is judged alone."""

    default_error_messages = {
        "type": "must be an array",
        "length": f"must have 1 to {ITEMS_MAX} items",
    }

    @override
    def to_internal_value(self, data: Any) -> list[Any]:
        if not isinstance(data, list):
            self.fail("type")
        if not 1 <= len(data) <= ITEMS_MAX:
            self.fail("length")
        return data


class KeyedRequest(BookingRequest):
    idempotency_key = Key()


class BulkRequest(ClosedSerializer):
    bookings = Items()


class BulkParser(parsers.StrictJsonParser):
    bytes_max = BYTES_MAX


class Bulk(Resource):
    http_method_names = ["post"]
    scopes: ClassVar = {"POST": Scope.WRITE.value}
    parser_classes = (BulkParser,)

    def post(self, request: Request) -> Response:
        """Accept up to 500 bookings: 200, and one item for each, in order, with the status that it would have alone.

        Of a key that is named twice the first item speaks; the second is a replay or a conflict.
        """
        parsers.require_json(request, BYTES_MAX)
        items: list[Any] = members(BulkRequest, request.data)["bookings"]
        self.count(request, len(items) - 1)  # the request itself is counted already
        tenant = auth.tenant_of(request)
        read = [_read(item) for item in items]
        keys = [one[0] for one in read if isinstance(one, tuple)]
        with admission.place(tenant.id, keys) as place:
            asked = [_unless_refused(place, one) for one in read]
            found = submission.book_each(tenant, [one for one in asked if isinstance(one, tuple)])
            place.made = sum(isinstance(one, Booked) and one.created for one in found)
        booked = iter(found)
        answers = [next(booked) if isinstance(one, tuple) else one for one in asked]
        return Response({"items": [_item(*pair) for pair in zip(items, answers, strict=True)]})


def _read(item: Any) -> Wanted | exceptions.ValidationError:
    try:
        found = members(KeyedRequest, item)
    except exceptions.ValidationError as error:
        return error
    key: str = found.pop("idempotency_key")
    return key, request_of(found)


def _unless_refused(
    place: admission.Place, item: Wanted | exceptions.ValidationError
) -> Wanted | exceptions.APIException:
    return (place.refusal_of(item[0]) or item) if isinstance(item, tuple) else item


def _item(sent: Any, answer: Booked | Exception) -> dict[str, Any]:
    key = sent.get("idempotency_key") if isinstance(sent, dict) else None
    found: dict[str, Any] = {"idempotency_key": key if isinstance(key, str) else None}
    if isinstance(answer, Booked):
        booking = {"id": str(answer.id), "links": {"self": representations.address_of(answer.id)}}
        return {
            **found,
            "status": int(HTTPStatus.ACCEPTED),
            "replayed": not answer.created,
            "booking": booking,
        }
    error = problems.from_domain(answer)
    assert isinstance(error, exceptions.APIException), "whatever is no answer to an item was raised"
    return {**found, "status": error.status_code, "problem": problems.of(error)}

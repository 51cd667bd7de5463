"""The routes of webhooks: endpoints, their secrets, and the log of what was sent. Each parses, calls one function, renders.

A secret is in the answer that made it and in no other.
"""

from typing import ClassVar
from uuid import UUID

from django.http import Http404
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from bookings.api import auth, cursors, parameters, parsers, representations, webhook_shapes
from bookings.api.resource import Resource, id_of
from bookings.models import Scope, WebhookEndpoint
from bookings.webhooks import deliveries, endpoints

MANAGE = Scope.WEBHOOKS.value
READING = ["get", "head"]


class Webhooks(Resource):
    http_method_names = [*READING, "post"]
    scopes: ClassVar = dict.fromkeys(("GET", "HEAD", "POST"), MANAGE)

    def get(self, request: Request) -> Response:
        """The tenant's endpoints, the enabled ones first; of those that ended only the last."""
        found = endpoints.listed(auth.tenant_of(request).id)
        return Response({"items": [webhook_shapes.endpoint(one) for one in found]})

    def post(self, request: Request) -> Response:
        """A new endpoint, with a secret that is not shown again."""
        parsers.require_json(request)
        url = webhook_shapes.url_of(request.data)
        with webhook_shapes.refusals():
            made = endpoints.create(auth.tenant_of(request).id, url)
        body = {**webhook_shapes.endpoint(made.endpoint), "secret": made.secret}
        return Response(
            body, status=status.HTTP_201_CREATED, headers={"Location": body["links"]["self"]}
        )


class OneWebhook(Resource):
    http_method_names = [*READING, "delete"]
    scopes: ClassVar = dict.fromkeys(("GET", "HEAD", "DELETE"), MANAGE)

    def get(self, request: Request, endpoint_id: str) -> Response:
        return Response(webhook_shapes.endpoint(_endpoint(request, endpoint_id)))

    def delete(self, request: Request, endpoint_id: str) -> Response:
        """End it for good; its log stays. Twice is once."""
        endpoints.disable(_endpoint(request, endpoint_id), "by its tenant")
        return Response(status=status.HTTP_204_NO_CONTENT)


class Secret(Resource):
    http_method_names = ["post"]
    scopes: ClassVar = {"POST": MANAGE}

    def post(self, request: Request, endpoint_id: str) -> Response:
        """A new secret, not shown again; the one before stays valid for a day."""
        found = _endpoint(request, endpoint_id)
        with webhook_shapes.refusals():
            secret = endpoints.rotate(found)
        return Response({**webhook_shapes.endpoint(found), "secret": secret})


class Deliveries(Resource):
    http_method_names = READING
    scopes: ClassVar = dict.fromkeys(("GET", "HEAD"), MANAGE)
    parameters: ClassVar = {"GET": parameters.Paged}

    def get(self, request: Request, endpoint_id: str) -> Response:
        """What was sent to this endpoint and what came of it, the newest event first."""
        found = _endpoint(request, endpoint_id)
        after, limit = cursors.begin(request, self.given), self.given["limit"]
        page = deliveries.page(found.id, before=UUID(after) if after else None, limit=limit + 1)
        last = page[limit - 1].event_id if len(page) > limit else None
        items = [webhook_shapes.delivery(one, found) for one in page[:limit]]
        following = cursors.next_link(request, self.given, last)
        return Response(representations.page(items, following))


def _endpoint(request: Request, text: str) -> WebhookEndpoint:
    """One of the caller's. Unknown, another tenant's and nonsense are the same 404."""
    found = endpoints.find(auth.tenant_of(request).id, id_of(text))
    if found is None:
        raise Http404
    return found

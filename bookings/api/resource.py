"""What every view of the API is: closed by default. A method without a scope is refused, and so is a parameter that the
method does not declare. Each request counts against the rate of its key, also one that is refused after that, and every
answer to a key says where it stands. Answers belong to one tenant: nothing between us and the client may keep them, and
the database shows the rows of that tenant only. Over plain HTTP nothing is done, where TLS is demanded: a redirect would
hide that the key was sent for all to read.
"""

import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any, ClassVar, override

from django.conf import settings
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from bookings.api import auth, faults, limits, query
from bookings.api.rates import Standing
from bookings.api.serializers import ClosedSerializer
from ledger import tenancy


class Resource(APIView):
    """`scopes` and `parameters` are by method; `given` are the parameters of this request, in their types."""

    scopes: ClassVar[Mapping[str, str]] = {}
    parameters: ClassVar[Mapping[str, type[ClosedSerializer]]] = {}
    given: Mapping[str, Any]
    standing: Standing | None = None
    sight: ExitStack  # ends with the request

    @override
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        with ExitStack() as self.sight:
            return super().dispatch(request, *args, **kwargs)

    @override
    def perform_authentication(self, request: Request) -> None:
        if settings.SECURE_SSL_REDIRECT and not request.is_secure():
            detail = "use https, and a new key: this one was sent in clear"
            raise faults.Problem(HTTPStatus.FORBIDDEN, "https-required", detail)
        super().perform_authentication(request)
        self.count(request, 1)

    def count(self, request: Request, units: int) -> None:
        """Take so many from the rate of the key, or refuse the request."""
        if units and isinstance(request.auth, auth.Key):
            key = request.auth
            self.standing = limits.count_request(key.prefix, key.rate_per_minute, units)
            if not self.standing.is_taken:
                raise limits.refusal(self.standing)

    @override
    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        self.sight.enter_context(tenancy.of(auth.tenant_of(request).id))
        method = "GET" if request.method == "HEAD" else str(request.method)
        self.given = query.read(request, self.parameters.get(method, ClosedSerializer))

    @override
    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        found = super().finalize_response(request, response, *args, **kwargs)
        found["Cache-Control"] = "no-store"
        for name, value in (limits.headers(self.standing) if self.standing else {}).items():
            found[name] = value
        return found


def id_of(text: str) -> uuid.UUID:
    """The id in its one spelling, 36 characters in lower case; Http404 for any other, as for an unknown one."""
    try:
        found = uuid.UUID(text)
    except ValueError:
        raise Http404 from None
    if str(found) != text:
        raise Http404
    return found

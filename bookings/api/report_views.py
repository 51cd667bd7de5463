"""The tenant's report: its bookings in the eight classes, judged from their journals, and adding up to all of them."""

from http import HTTPStatus
from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from bookings import listings
from bookings.api import auth, faults, parameters, representations
from bookings.api.resource import Resource
from bookings.listings import Period
from bookings.models import Scope


class Report(Resource):
    http_method_names = ["get", "head"]
    scopes = {"GET": Scope.READ.value, "HEAD": Scope.READ.value}
    parameters: ClassVar = {"GET": parameters.Made}

    def get(self, request: Request) -> Response:
        """All bookings made in a period, by class, with money; 422 for more bookings than one report reads."""
        try:
            found = listings.report(auth.tenant_of(request).id, Period(**self.given))
        except listings.TooMany:
            detail = f"more than {listings.REPORTED_MAX} bookings: ask for shorter periods"
            raise faults.Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "too-many", detail) from None
        return Response(representations.report(found))

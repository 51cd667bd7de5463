"""What can be booked: hotels, rooms free for a stay, and its price. Reads only; nothing here is a promise."""

from typing import ClassVar

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from bookings import availability
from bookings.api import cursors, parameters, parsers, representations, serializers
from bookings.api.resource import Resource
from bookings.models import Scope

READ = {"GET": Scope.READ.value, "HEAD": Scope.READ.value}


class Hotels(Resource):
    http_method_names = ["get", "head"]
    scopes = READ
    parameters: ClassVar = {"GET": parameters.Paged}

    def get(self, request: Request) -> Response:
        """Our hotels, in order of their codes."""
        after = cursors.begin(request, self.given)
        found, last = availability.hotels(self.given["limit"], after)
        following = cursors.next_link(request, self.given, last)
        return Response(representations.page(map(representations.hotel, found), following))


class Availability(Resource):
    http_method_names = ["get", "head"]
    scopes = READ
    parameters: ClassVar = {"GET": parameters.Stay}

    def get(self, request: Request, code: str) -> Response:
        """Each room type of a hotel: how many rooms are free in every night of the stay now, and its price."""
        arrival, nights = self.given["arrival"], self.given["nights"]
        found = availability.stay(code, arrival, nights) if serializers.is_text(code) else None
        if found is None:
            raise Http404
        return Response(representations.availability(code, arrival, nights, found))


class Quotes(Resource):
    http_method_names = ["post"]
    scopes: ClassVar = {"POST": Scope.READ.value}

    def post(self, request: Request) -> Response:
        """The price of one stay and the rooms free now, by the rules of its booking. Changes nothing and keeps nothing."""
        parsers.require_json(request)
        wanted = serializers.stay(request.data)
        return Response(representations.quote(wanted, availability.quote(wanted)))

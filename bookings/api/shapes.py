"""The shapes of answers, for the schema: what `representations` makes, member by member; a test compares the two."""

from typing import Any, override

from rest_framework import serializers

from ledger.saga import Direction
from ledger.standing import Standing
from ledger.states import ClientState

STATES = [str(state) for state in ClientState]
CLASSES = [str(standing) for standing in Standing]
DIRECTIONS = [str(direction) for direction in Direction]
ENTRIES = ["attempt", "receipt", "sighting", "resolution"]


class Money(serializers.Serializer[Any]):
    amount_minor = serializers.IntegerField(min_value=1)
    currency = serializers.CharField()


class Links(serializers.Serializer[Any]):
    journal = serializers.CharField()
    operations = serializers.CharField()

    @override
    def get_fields(self) -> dict[str, Any]:
        return {"self": serializers.CharField(), **super().get_fields()}


class Booking(serializers.Serializer[Any]):
    """`state` is where it stands, `class` what its journal proves; while `outcome_known` is false neither says that it
    failed.
    """

    id = serializers.UUIDField()
    state = serializers.ChoiceField(STATES)
    outcome_known = serializers.BooleanField()
    version = serializers.IntegerField(min_value=0)
    hotel = serializers.CharField()
    room_type = serializers.CharField()
    arrival = serializers.DateField()
    nights = serializers.IntegerField()
    guest = serializers.CharField(allow_blank=True)
    client_reference = serializers.CharField(allow_blank=True)
    price = Money()
    created_at = serializers.DateTimeField()
    links = Links()

    @override
    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), "class": serializers.ChoiceField(CLASSES)}


class BookingPage(serializers.Serializer[Any]):
    items = Booking(many=True)
    next = serializers.CharField(allow_null=True)


class Entry(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    entry = serializers.ChoiceField(ENTRIES)
    step = serializers.CharField(allow_null=True)
    direction = serializers.ChoiceField(DIRECTIONS, allow_null=True)
    n = serializers.IntegerField(allow_null=True)
    outcome = serializers.CharField(allow_null=True)
    # Named `source` in the answer, which the class of a field would take for its own.

    @override
    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), "source": serializers.CharField(allow_null=True)}


class Journal(serializers.Serializer[Any]):
    entries = Entry(many=True)
    earlier_left_out = serializers.BooleanField()


class Known(serializers.Serializer[Any]):
    outcome = serializers.ChoiceField(["confirmed", "refused", "not_sent"])
    since = serializers.DateTimeField(allow_null=True)


class Unknown(serializers.Serializer[Any]):
    sent_at = serializers.DateTimeField(allow_null=True)
    asked_at = serializers.DateTimeField(allow_null=True)


class Operation(serializers.Serializer[Any]):
    """Either `known` or `unknown` is null."""

    step = serializers.CharField()
    direction = serializers.ChoiceField(DIRECTIONS)
    attempts = serializers.IntegerField()
    known = Known(allow_null=True)
    unknown = Unknown(allow_null=True)
    blocks = serializers.BooleanField()


class Operations(serializers.Serializer[Any]):
    operations = Operation(many=True)


class Amounts(serializers.Serializer[Any]):
    currency = serializers.CharField()
    captured_minor = serializers.IntegerField()
    refunded_minor = serializers.IntegerField()
    held_minor = serializers.IntegerField()
    at_risk_minor = serializers.IntegerField()


class ReportLine(serializers.Serializer[Any]):
    bookings = serializers.IntegerField()
    oldest_seconds = serializers.IntegerField(allow_null=True)
    money = Amounts(many=True)

    @override
    def get_fields(self) -> dict[str, Any]:
        return {"class": serializers.ChoiceField(CLASSES), **super().get_fields()}


class Report(serializers.Serializer[Any]):
    bookings = serializers.IntegerField()
    classes = ReportLine(many=True)


class Hotel(serializers.Serializer[Any]):
    code = serializers.CharField()
    name = serializers.CharField()
    timezone = serializers.CharField()
    currency = serializers.CharField()
    room_types = serializers.ListField(child=serializers.CharField())


class HotelPage(serializers.Serializer[Any]):
    items = Hotel(many=True)
    next = serializers.CharField(allow_null=True)


class FreeRooms(serializers.Serializer[Any]):
    room_type = serializers.CharField()
    rooms_free = serializers.IntegerField(min_value=0)
    price = Money(allow_null=True)


class Availability(serializers.Serializer[Any]):
    hotel = serializers.CharField()
    arrival = serializers.DateField()
    nights = serializers.IntegerField()
    room_types = FreeRooms(many=True)


class Quote(serializers.Serializer[Any]):
    hotel = serializers.CharField()
    room_type = serializers.CharField()
    arrival = serializers.DateField()
    nights = serializers.IntegerField()
    price = Money()
    rooms_free = serializers.IntegerField(min_value=0)

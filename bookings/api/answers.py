"""The shapes of answers, for the schema, that `shapes` has not: problem documents, what bulk says, and webhooks."""

from typing import Any, override

from rest_framework import serializers

from ledger.states import ClientState

STATUSES = ["delivered", "given_up", "pending", "stopped"]
Fields = dict[str, Any]


class Fault(serializers.Serializer[Any]):
    """`pointer`: a JSON pointer into the body, a header's name, or a question mark and a parameter's name."""

    pointer = serializers.CharField(allow_blank=True)
    code = serializers.CharField()
    detail = serializers.CharField()


class Current(serializers.Serializer[Any]):
    """The booking as it is now."""

    state = serializers.ChoiceField([str(state) for state in ClientState])
    version = serializers.IntegerField(min_value=0)
    etag = serializers.CharField()


class Problem(serializers.Serializer[Any]):
    """RFC 9457. `instance` names the request, for our logs; `errors` the places in it that are wrong."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField(min_value=400, max_value=599)
    detail = serializers.CharField(allow_blank=True)
    instance = serializers.CharField()
    # The base class has an `errors` of its own, which a field of that name would hide.

    @override
    def get_fields(self) -> Fields:
        return {**super().get_fields(), "errors": Fault(many=True, required=False)}


class ProblemOfBooking(Problem):
    """One that depends on how the booking stands: `current`."""

    current = Current(required=False)


class ProblemOfRate(Problem):
    """429: which limits were reached."""

    @override
    def get_fields(self) -> Fields:
        policies = serializers.ListField(child=serializers.CharField())
        return {**super().get_fields(), "violated-policies": policies}


class OwnLink(serializers.Serializer[Any]):
    @override
    def get_fields(self) -> Fields:
        return {"self": serializers.CharField()}


class Accepted(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    links = OwnLink()


class BulkItem(serializers.Serializer[Any]):
    """`status` as a request of its own would have had: with 202 a `booking`, with any other a `problem`."""

    idempotency_key = serializers.CharField(allow_null=True, allow_blank=True)
    status = serializers.IntegerField()
    replayed = serializers.BooleanField(required=False)
    booking = Accepted(required=False)
    problem = Problem(required=False)


class BulkAnswer(serializers.Serializer[Any]):
    items = BulkItem(many=True)


class EndpointLinks(OwnLink):
    deliveries = serializers.CharField()


class Endpoint(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    url = serializers.CharField()
    enabled = serializers.BooleanField()
    disabled_at = serializers.DateTimeField(allow_null=True)
    disabled_reason = serializers.CharField(allow_null=True)
    failures_in_a_row = serializers.IntegerField(min_value=0)
    succeeded_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    links = EndpointLinks()


class EndpointWithSecret(Endpoint):
    """The only answer that shows this secret."""

    secret = serializers.CharField()


class Endpoints(serializers.Serializer[Any]):
    items = Endpoint(many=True)


class Delivery(serializers.Serializer[Any]):
    """`id` is the `webhook-id` that was sent."""

    id = serializers.UUIDField()
    type = serializers.CharField()
    booking_id = serializers.UUIDField()
    status = serializers.ChoiceField(STATUSES)
    attempts = serializers.IntegerField(min_value=0)
    next_try_at = serializers.DateTimeField(allow_null=True)
    delivered_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    tries = serializers.ListField(child=serializers.DictField())


class DeliveryPage(serializers.Serializer[Any]):
    items = Delivery(many=True)
    next = serializers.CharField(allow_null=True)

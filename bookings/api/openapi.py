"""How the schema is made: from what the views declare (scopes, parameters, docstrings) and the table in `contract`.

The promise: no route is without a description. One that `contract` does not know, or knows with other methods, is a
warning, and `spectacular --fail-on-warn`, `check --deploy` and a test fail on it. What a field accepts is said here in the
same words as its code: one pattern per kind of field.
"""

from collections.abc import Callable, Mapping
from typing import Any, override

from drf_spectacular.drainage import warn
from drf_spectacular.extensions import (
    OpenApiAuthenticationExtension,
    OpenApiSerializerExtension,
    OpenApiSerializerFieldExtension,
)
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import (
    Direction,
    OpenApiExample,
    OpenApiResponse,
    extend_schema_serializer,
)
from rest_framework.fields import Field

from bookings.api import (
    answers,
    bulk,
    contract,
    examples,
    idempotency,
    problems,
    query,
    serializers,
)
from bookings.api.contract import Operation

BEARER = "apiKey"
_CONTROL = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
TEXT = rf"^[^{_CONTROL}]*[^{_CONTROL}\s][^{_CONTROL}]*$"
Described = dict[str, Any]


class Schema(AutoSchema):
    """One operation. Named in settings.REST_FRAMEWORK."""

    @property
    def operation(self) -> Operation:
        found = contract.OPERATIONS.get((self.path, self.method))
        if found is None:
            warn(f"{self.method} {self.path} is not in bookings.api.contract")
        return found or Operation("unknown", "unknown", {})

    @override
    def get_operation_id(self) -> str:
        return self.operation.name

    @override
    def get_tags(self) -> list[str]:
        return [self.operation.tag]

    @override
    def get_summary(self) -> str:
        return self.operation.name.replace("_", " ").capitalize()

    @override
    def get_description(self) -> str:  # type: ignore[override]  # as in its base class
        said = str(super().get_description())
        return f"{said}\n\nScope: `{self._scope()}`.".strip()

    @override
    def get_auth(self) -> list[Described]:
        return [{key: [self._scope()] for key in needed} for needed in super().get_auth()]

    @override
    def get_request_serializer(self) -> Any:
        return self.operation.asks

    @override
    def get_response_serializers(self) -> Any:
        found: dict[Any, OpenApiResponse] = {
            status: OpenApiResponse(shape, contract.MEANINGS[status])
            for status, shape in self.operation.answers.items()
        }
        for status in contract.errors(self.operation, self.path):
            shape = contract.PROBLEMS.get(status, answers.Problem)
            found[status, problems.CONTENT_TYPE] = OpenApiResponse(shape, contract.MEANINGS[status])
        return found

    @override
    def get_override_parameters(self) -> list[Any]:
        declared = getattr(self.view, "parameters", {}).get(self.method)
        return [
            *([declared] if declared else []),
            *self.operation.takes,
            *contract.gives(self.operation),
        ]

    @override
    def get_examples(self) -> list[OpenApiExample]:
        return examples.of(self.operation.name)

    def _scope(self) -> str:
        return str(getattr(self.view, "scopes", {}).get(self.method, ""))


def share(result: Described, **_: object) -> Described:
    """A postprocessing hook: a problem that many operations answer with alike is described once."""
    shared: Described = {}
    for operation in (one for path in result["paths"].values() for one in path.values()):
        for status, found in operation["responses"].items():
            is_problem = problems.CONTENT_TYPE in found.get("content", {})
            if is_problem and found == shared.setdefault(f"Problem{status}", found):
                operation["responses"][status] = {"$ref": f"#/components/responses/Problem{status}"}
    result["components"]["responses"] = dict(sorted(shared.items()))
    return result


class Bearer(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "bookings.api.auth.ApiKeyAuthentication"
    name = BEARER

    @override
    def get_security_definition(self, auto_schema: AutoSchema) -> Described:
        detail = "An API key of one tenant: `Authorization: Bearer <key>`. What it may do is named by its scopes."
        return {"type": "http", "scheme": "bearer", "description": detail}


# `shapes.Money` has the name already, and other bounds.
extend_schema_serializer(component_name="ExpectedTotal")(serializers.MoneySerializer)


class Closed(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """What a client sends has no other members."""

    target_class = "bookings.api.serializers.ClosedSerializer"
    match_subclasses = True

    @override
    def map_serializer(self, auto_schema: AutoSchema, direction: Direction) -> Described:
        found = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)  # type: ignore[no-untyped-call]  # noqa: SLF001
        return {**found, "additionalProperties": False}


def _text(field: serializers.StrictString) -> Described:
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": field.length,
        "pattern": TEXT,
    }


def _range(field: Any) -> Described:
    return {"type": "integer", "minimum": field.low, "maximum": field.high}


def _date(_field: object) -> Described:
    return {"type": "string", "format": "date", "description": f"In the years {_YEARS}."}


def _currency(_field: object) -> Described:
    return {"type": "string", "pattern": "^[A-Z]{3}$", "description": "ISO 4217."}


def _instant(_field: object) -> Described:
    return {"type": "string", "format": "date-time", "description": f"In the years {_YEARS}."}


def _word(field: query.OneOf[Any]) -> Described:
    return {"type": "string", "enum": list(field.words)}


def _key(_field: object) -> Described:
    return {"type": "string", "pattern": f"^{idempotency.VISIBLE.pattern}$"}


_YEARS = f"{serializers.YEAR_MIN} to {serializers.YEAR_MAX}"
_KINDS: Mapping[type[Field[Any, Any, Any, Any]], Callable[[Any], Described]] = {
    serializers.StrictString: _text,
    serializers.FreeText: _text,
    serializers.StrictInteger: _range,
    serializers.StrictDate: _date,
    serializers.StrictCurrency: _currency,
    query.TextInteger: _range,
    query.Instant: _instant,
    query.OneOf: _word,
    bulk.Key: _key,
}


class StrictFields(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """The fields that are ours. Each says what its code accepts."""

    target_class = "rest_framework.fields.Field"
    match_subclasses = True
    priority = -1

    @classmethod
    @override
    def _matches(cls, target: Any) -> bool:
        return type(target) in _KINDS

    @override
    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> Described:
        return _KINDS[type(self.target)](self.target)


class BulkItems(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    target_class = "bookings.api.bulk.Items"

    @override
    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> Described:
        item = auto_schema.resolve_serializer(bulk.KeyedRequest, direction).ref
        return {"type": "array", "items": item, "minItems": 1, "maxItems": bulk.ITEMS_MAX}

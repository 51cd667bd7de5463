"""The schema says what the API does: every route is in it, it is the one that is committed, and its examples are no lies."""

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # has no types
import pytest
import yaml
from django.core.management import call_command
from django.test import Client

from bookings.api import contract, examples
from bookings.models import RoomType
from tests import hotels
from tests.api import routes
from tests.api.conftest import ApiClient
from tests.api.problems import assert_problem
from tests.webhooks.conftest import receiver
from tests.webhooks.receivers import Receiver

__all__ = ["receiver"]

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml"
MAKE = "manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml"


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads(Client().get("/v1/schema").content)


def operations(schema: Any) -> list[tuple[str, str, Any]]:
    return [
        (path, method.upper(), operation)
        for path, found in schema["paths"].items()
        for method, operation in found.items()
    ]


def resolved(schema: Any, found: Any) -> Any:
    if "$ref" not in found:
        return found
    for name in found["$ref"].removeprefix("#/").split("/"):
        schema = schema[name]
    return schema


def exemplified(schema: Any) -> list[Any]:
    """(operation, where, shape, value) of every example."""
    found = []
    for _, _, operation in operations(schema):
        places = {"request": operation.get("requestBody", {}), **operation["responses"]}
        for place, said in places.items():
            for media in resolved(schema, said).get("content", {}).values():
                values = [one["value"] for one in media.get("examples", {}).values()]
                found += [(operation["operationId"], place, media["schema"], v) for v in values]
    return found


def test_the_committed_schema_is_that_of_the_code(tmp_path: Path) -> None:
    made = tmp_path / "openapi.yaml"
    call_command("spectacular", file=str(made), validate=True, fail_on_warn=True)
    assert made.read_text() == COMMITTED.read_text(), f"run {MAKE}"


def test_what_is_served_is_what_is_committed(schema: Any) -> None:
    assert schema == yaml.safe_load(COMMITTED.read_text())


def test_every_route_of_tenants_is_described_with_its_methods_and_scopes(schema: Any) -> None:
    found = {
        (path.lstrip("/"), method): operation["security"]
        for path, method, operation in operations(schema)
    }
    assert found == {
        (pattern.replace("<str:", "{").replace(">", "}"), method): [{"apiKey": [allowed.scope]}]
        for pattern, methods in routes.TENANTS.items()
        for method, allowed in methods.items()
        if method != "HEAD"
    }
    assert {(path, method) for path, method, _ in operations(schema)} == set(contract.OPERATIONS)


def test_an_example_is_of_the_shape_beside_it(schema: Any) -> None:
    found = exemplified(schema)
    assert {operation for operation, *_ in found} == set(examples.EXAMPLES)
    for operation, place, shape, value in found:
        whole = {**shape, "components": schema["components"]}
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        judge = jsonschema.Draft202012Validator(whole, format_checker=checker)
        assert [e.message for e in judge.iter_errors(value)] == [], (operation, place)


def test_every_request_among_the_examples_is_accepted(
    schema: Any, api: ApiClient, receiver: Receiver
) -> None:
    """As it stands, but for its date, which will have passed some day, and its host, which is nobody's."""
    small = hotels.make(code="RESORT", capacity=50)
    RoomType.objects.update(code="A")
    booking = api.book(small.stay() | {"room_type": "A"}, "own")
    paths = {one["operationId"]: (path, method) for path, method, one in operations(schema)}
    sent = [(name, value) for name, place, _, value in exemplified(schema) if place == "request"]
    assert sent
    for n, (name, value) in enumerate(sent):
        path, method = paths[name]
        text = json.dumps(value).replace(examples.ARRIVAL, small.first.isoformat())
        body = json.loads(text.replace(examples.HOST, receiver.url("")))
        headers = {"Idempotency-Key": f"example-{n}", "If-Match": "*"}
        answer = api.send(method, path.replace("{booking_id}", booking), body, headers)
        assert answer.status_code in contract.OPERATIONS[path, method].answers, answer.content
        assert {item["status"] for item in answer.json().get("items", [])} <= {202}


@pytest.mark.parametrize("path", ["/v1/schema", "/v1/docs"])
def test_the_schema_and_its_page_take_no_parameters(path: str) -> None:
    assert_problem(Client().get(f"{path}?format=yaml"), 400)

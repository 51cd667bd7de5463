"""What every error of the API looks like."""

from typing import Any

MEMBERS = {"type", "title", "status", "detail", "instance"}


def assert_problem(response: Any, status: int, *pointers: str) -> dict[str, Any]:
    """The response is a problem document of this status, naming at least these places."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert set(found) - {"errors", "current"} == MEMBERS
    assert found["status"] == status
    assert found["type"].startswith("urn:amends:problem:")
    assert found["instance"].startswith("urn:amends:request:")
    assert response["X-Request-ID"]
    for error in found.get("errors", []):
        assert set(error) == {"pointer", "code", "detail"}
    assert set(pointers) <= {error["pointer"] for error in found.get("errors", [])}, found
    return found


def without_instance(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "instance"}

"""The Idempotency-Key header: one rule, checked before anything else; equal after unquoting is equal."""

from typing import Any

import pytest

from bookings.api import idempotency
from tests import hotels
from tests.api.problems import assert_problem

LONGEST = "k" * 255


@pytest.mark.parametrize(
    "key",
    [
        None, "", " ", "   ", "\t", '""', '" "', "a b", '"a b"', "a,b", "key,key", '"a", "b"', '"a";p=1', '"a',
        '"a\\x"',
        "k" * 256,
        f'"{"k" * 256}"', "k" * 3000, "cl\u00e9", '"cl\u00e9"', "a\x00b", "a\x7fb", "a\tb", '"a" b', ":YWJj:, x",
    ],
)  # fmt: skip
def test_a_key_that_breaks_the_rule_is_400(api: Any, body: dict[str, Any], key: str | None) -> None:
    assert_problem(api.post(body, key=key), 400, "Idempotency-Key")
    assert hotels.accepted_rows() == (0, 0, 0)


@pytest.mark.parametrize(
    "key", ["k", LONGEST, f'"{LONGEST}"', "8e03978e-40d5-43dd-bc93-6894a57f9324", "!~'()*", "12"]
)
def test_a_key_by_the_rule_is_taken(api: Any, body: dict[str, Any], key: str) -> None:
    assert api.post(body, key=key).status_code == 202


@pytest.mark.parametrize(
    ("first", "second"),
    [("abc", '"abc"'), ("abc", "  abc "), ('a"b', '"a\\"b"'), ("a\\b", '"a\\\\b"')],
)
def test_two_spellings_of_one_key_are_one_key(
    api: Any, body: dict[str, Any], first: str, second: str
) -> None:
    assert "Idempotent-Replayed" not in api.post(body, key=first)
    assert api.post(body, key=second)["Idempotent-Replayed"] == "true"
    assert hotels.accepted_rows() == (1, 1, 1)


def test_keys_that_differ_in_case_are_two(api: Any, body: dict[str, Any]) -> None:
    api.post(body, key="abc")
    api.post(body, key="ABC")
    assert hotels.accepted_rows() == (2, 2, 2)


def test_the_case_of_the_headers_name_does_not_matter(api: Any, body: dict[str, Any]) -> None:
    response = api.post(body, key=None, headers={"idempotency-KEY": "abc"})
    assert response.status_code == 202


@pytest.mark.parametrize(("given", "key"), [('"a,b"', "a,b"), ("a", "a"), ('"\\""', '"')])
def test_unquoting(given: str, key: str) -> None:
    assert idempotency.unquote(given) == key

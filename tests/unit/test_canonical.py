"""Equal meaning, equal fingerprint; any other meaning, another, and the difference is named."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import canonical
from ledger.outcomes import Difference

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


def shuffled(value: Any, random: Any) -> Any:
    """The same value with the members of every object in another order."""
    if isinstance(value, dict):
        items = [(name, shuffled(member, random)) for name, member in value.items()]
        random.shuffle(items)
        return dict(items)
    return [shuffled(item, random) for item in value] if isinstance(value, list) else value


def resolved(value: Any, pointer: str) -> Any:
    """RFC 6901."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else value.get(name, canonical.ABSENT)
    return value


@given(JSON)
def test_what_is_encoded_reads_back_the_same(value: Any) -> None:
    assert json.loads(canonical.encode(value)) == value


@given(JSON, st.randoms())
def test_the_order_of_members_means_nothing(value: Any, random: Any) -> None:
    other = shuffled(value, random)
    assert canonical.encode(other) == canonical.encode(value)
    assert list(canonical.differences(value, other)) == []


@given(JSON, JSON)
def test_fingerprints_are_equal_exactly_when_no_difference_is_named(one: Any, two: Any) -> None:
    same = canonical.fingerprint(one) == canonical.fingerprint(two)
    assert same == (list(canonical.differences(one, two)) == [])
    assert len(canonical.fingerprint(one)) == 32


@given(st.dictionaries(st.text(max_size=8), JSON), st.dictionaries(st.text(max_size=8), JSON))
def test_every_difference_points_at_both_values(stored: Any, new: Any) -> None:
    for difference in canonical.differences(stored, new):
        assert resolved(stored, difference.pointer) == difference.stored
        assert resolved(new, difference.pointer) == difference.new


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        (2**70, "1180591620717411303424"),
        ("é\u2028\x00", '"é\u2028\\u0000"'),
        ({}, "{}"),
    ],
)
def test_the_form(value: Any, text: str) -> None:
    assert canonical.encode(value) == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.5, "^/: a float"),
        ({"a": {"b": [0, 1.0]}}, "^/a/b/1: a float"),
        (float("nan"), "a float"),
        ({"a/b": float("inf")}, "^/a~1b: a float"),
        ({1: "x"}, "member name 1 is not a string"),
        ({"a": object()}, "not JSON serializable"),
        ({"a": b"raw"}, "not JSON serializable"),
    ],
)
def test_what_has_no_canonical_form_is_refused_naming_the_place(value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        canonical.encode(value)


def test_a_lone_surrogate_has_no_fingerprint() -> None:
    with pytest.raises(UnicodeEncodeError):
        canonical.fingerprint("\ud800")


def test_differences_are_named_one_by_one() -> None:
    stored = {"amount": 1, "guests": [{"name": "Ann"}], "gone": None, "flag": True}
    new = {"amount": 2, "guests": [{"name": "Zoe"}], "added": "x", "flag": 1}
    assert list(canonical.differences(stored, new)) == [
        Difference("/added", canonical.ABSENT, "x"),
        Difference("/amount", 1, 2),
        Difference("/flag", stored=True, new=1),
        Difference("/gone", None, canonical.ABSENT),
        Difference("/guests/0/name", "Ann", "Zoe"),
    ]


def test_lists_of_other_lengths_differ_as_a_whole() -> None:
    assert list(canonical.differences({"a": [1]}, {"a": [1, 2]})) == [Difference("/a", [1], [1, 2])]

"""Whatever a provider said is storable: bounded JSON without NUL or lone surrogates; what was cut keeps length and hash."""

import hashlib
import json
from datetime import timedelta
from typing import Any, override

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import evidence, outcomes
from ledger.outcomes import Money

ANY_TEXT = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["\x00", "\ud800", "a\udfffb", "\U0001f600"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | ANY_TEXT
    | st.binary(max_size=20)
    | st.just(object())
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


def jsonb(value: Any) -> str:
    """The text that PostgreSQL would get; an AssertionError for what jsonb refuses."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode("utf-8")
    assert "\\u0000" not in text.replace("\\\\u0000", "")
    return text


def nested(depth: int) -> Any:
    value: Any = "end"
    for _ in range(depth):
        value = [value]
    return value


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@given(ANYTHING)
def test_anything_becomes_storable(value: Any) -> None:
    jsonb(evidence.storable(value))


@given(ANYTHING, ANY_TEXT)
def test_every_outcome_becomes_storable(value: Any, text: str) -> None:
    cost = Money(2**70, text)
    for outcome in (
        outcomes.Confirmed(ref=text, data={"answer": value}, cost=cost, stale=True),
        outcomes.Refused(text, {"answer": value}),
        outcomes.Unknown(text, {"answer": value}),
        outcomes.NotSent(text),
        outcomes.Throttled(timedelta(seconds=-5), text),
        outcomes.NotLanded({"answer": value}),
    ):
        name, found = evidence.of(outcome)
        jsonb(found)
        assert name in {"confirmed", "refused", "unknown", "not_sent", "throttled", "not_landed"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.text(max_size=9),
        st.lists,
    )
)
def test_what_is_storable_already_is_kept_as_it_is(value: Any) -> None:
    if depth_of(value) < evidence.DEPTH_MAX and "\x00" not in json.dumps(value, ensure_ascii=False):
        text = json.dumps(value)
        if "\\u0000" not in text:
            assert evidence.storable(value) == value


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a\x00b", "a\\u0000b"),
        ("a\ud800b", "a\\ud800b"),
        ("plain é 😀", "plain é 😀"),
        (2**70, str(2**70)),
        (-(2**70), str(-(2**70))),
        (2**63 - 1, 2**63 - 1),
        (1.5, "1.5"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (True, True),
        (None, None),
        ((1, 2), [1, 2]),
        ({1: "x"}, {"1": "x"}),
        (b"raw", {"bytes": 3, "sha256": hashlib.sha256(b"raw").hexdigest()}),
    ],
)
def test_what_is_kept(value: Any, kept: Any) -> None:
    assert evidence.storable(value) == kept


def test_a_huge_text_keeps_its_beginning_length_and_hash() -> None:
    text = "proof of payment " * 100_000
    kept = evidence.storable(text)
    assert len(kept) < evidence.TEXT_MAX + 200
    assert kept.startswith("proof of payment ")
    assert f"{len(text)} characters" in kept
    assert hashlib.sha256(text.encode()).hexdigest() in kept


def test_a_text_at_the_limit_is_whole() -> None:
    assert evidence.storable("x" * evidence.TEXT_MAX) == "x" * evidence.TEXT_MAX


@pytest.mark.parametrize("depth", [8, 50, 900])
def test_deep_nesting_is_cut_with_length_and_hash(depth: int) -> None:
    kept = evidence.storable(nested(depth))
    assert depth_of(kept) <= evidence.DEPTH_MAX + 1
    if depth > evidence.DEPTH_MAX:
        text = jsonb(kept)
        assert '"cut": true' in text
        assert '"sha256"' in text


def test_deep_nesting_within_the_limit_is_whole() -> None:
    assert evidence.storable(nested(evidence.DEPTH_MAX - 1)) == nested(evidence.DEPTH_MAX - 1)


def test_nesting_deeper_than_the_interpreter_goes_is_storable() -> None:
    jsonb(evidence.storable(nested(200_000)))


def test_an_integer_too_long_to_be_written_out_is_storable() -> None:
    jsonb(evidence.storable({"amount": 10**5_000}))


def test_what_was_cut_is_hashed_as_a_whole() -> None:
    """Two answers that differ only past the cut must not look the same."""
    one, two = (evidence.storable(nested_text("x" * 10_000 + end)) for end in ("a", "b"))
    assert one != two


def nested_text(text: str) -> Any:
    value: Any = text
    for _ in range(20):
        value = [value]
    return value


def test_the_whole_is_bounded() -> None:
    wide = [["x" * evidence.TEXT_MAX] * evidence.ITEMS_MAX] * evidence.ITEMS_MAX
    assert len(jsonb(evidence.storable(wide))) < 4_000_000


def test_a_long_list_or_object_says_that_something_was_left_out() -> None:
    items = evidence.storable(list(range(1_000)))
    members = evidence.storable({str(n): n for n in range(1_000)})
    assert items[: evidence.ITEMS_MAX] == list(range(evidence.ITEMS_MAX))
    assert items[evidence.ITEMS_MAX]["cut"] is True
    assert len(items[-1]["sha256"]) == len(members["cut"]["sha256"]) == 64


def test_an_object_whose_text_cannot_be_made_is_storable() -> None:
    class Broken:
        @override
        def __repr__(self) -> str:
            raise RuntimeError

    jsonb(evidence.storable({"answer": Broken()}))


def test_a_reason_is_bounded() -> None:
    _, found = evidence.of(outcomes.Refused("r" * 10_000))
    assert len(found["reason"]) == evidence.REASON_MAX


def test_a_throttle_never_counts_backward() -> None:
    assert evidence.of(outcomes.Throttled(timedelta(seconds=-5)))[1]["after_seconds"] == "0.0"

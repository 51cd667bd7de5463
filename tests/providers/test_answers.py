"""Reading an answer is strict, total and pure: any bytes lead to an outcome that PostgreSQL can
store.
"""

import json
from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookings.providers import answers
from ledger import outcomes

JSON = {"content-type": "application/json"}
DATE = "Mon, 05 May 2031 10:00:00 GMT"


def answer(body: bytes, status: int = 200, headers: Mapping[str, str] = JSON) -> answers.Answer:
    return answers.Answer(status, headers, body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"1",
        b'"text"',
        b"{",
        b"\xff\xfe{}",
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": ' + b"9" * 6000 + b"}",
        b'{"a": ' * 60_000,
        b"{} {}",
    ],
)
def test_what_is_not_one_json_object_is_unreadable(body: bytes):
    for status in (200, 201, 402, 404, 409):
        found = answers.read(answer(body, status))
        assert isinstance(found, outcomes.Unknown)
        assert found.reason == "unreadable_answer"
        assert found.data["status"] == status


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON; charset=utf-8", "application/x+json"]
)
def test_json_is_read_under_its_names(content_type: str):
    found = answers.read(answer(b'{"a": 1}', headers={"content-type": content_type}))
    assert isinstance(found, answers.Reading)
    assert found.members == {"a": 1}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 5),
        ({"retry-after": "30"}, 30),
        ({"retry-after": " 30 "}, 30),
        ({"retry-after": "0"}, 1),
        ({"retry-after": "3601"}, 3600),
        ({"retry-after": "-1"}, 5),
        ({"retry-after": "+5"}, 5),
        ({"retry-after": "1.5"}, 5),
        ({"retry-after": "²"}, 5),
        ({"retry-after": "Mon, 05 May 2031 10:01:30 GMT", "date": DATE}, 90),
        ({"retry-after": "Mon, 05 May 2031 09:00:00 GMT", "date": DATE}, 1),
        ({"retry-after": "Mon, 05 May 9999 10:00:00 GMT", "date": DATE}, 3600),
        ({"retry-after": "Mon, 05 May 2031 10:01:30 GMT"}, 5),
        ({"retry-after": "Mon, 99 May 2031 10:01:30 GMT", "date": DATE}, 5),
    ],
    ids=str,
)
def test_retry_after_is_bounded(headers: dict[str, str], seconds: int):
    assert answers.retry_after(headers) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("status", "headers", "after"),
    [
        (503, {"retry-after": "30"}, timedelta(seconds=30)),
        (503, {}, None),
        (500, {"retry-after": "999999"}, timedelta(hours=1)),
        (418, {"retry-after": "30"}, None),
    ],
)
def test_a_server_that_fails_may_ask_for_patience_and_stays_unknown(
    status: int, headers: dict[str, str], after: timedelta | None
):
    found = answers.read(answer(b"{}", status, headers=headers))
    assert isinstance(found, outcomes.Unknown)
    assert (found.reason, found.after) == (f"status_{status}", after)


@given(text=st.text(max_size=60), date=st.text(max_size=60))
def test_retry_after_is_total(text: str, date: str):
    after = answers.retry_after({"retry-after": text, "date": date})
    assert answers.THROTTLE_MIN <= after <= answers.THROTTLE_MAX


@given(
    body=st.binary(max_size=3000) | st.text(max_size=3000).map(lambda text: text.encode()),
    status=st.integers(100, 599),
    content_type=st.sampled_from(["application/json", "text/html", "", "a\0b"]),
)
def test_any_answer_is_read_or_kept_storable(body: bytes, status: int, content_type: str):
    found = answers.read(answer(body, status, {"content-type": content_type}))
    if isinstance(found, answers.Reading):
        assert status in answers.DONE | answers.DECIDED
        kept = found.answer.evidence()
    elif isinstance(found, outcomes.Throttled):
        assert status == 429
        return
    else:
        kept = found.data  # type: ignore[assignment]
    text = json.dumps(kept, ensure_ascii=False)
    assert "\\u0000" not in text
    assert len(text.encode("utf-8")) < 20_000


@given(st.text(alphabet=st.characters(codec=None), max_size=100))
def test_storable_text_has_neither_nul_nor_surrogates(text: str):
    clean = answers.storable(text)
    assert "\0" not in clean
    clean.encode("utf-8")

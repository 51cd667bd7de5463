"""Every way in which a provider call can end, for each kind of operation, against the real
sandbox.

For each: the outcome that the engine is told, how many wire requests and how many effects the
provider counts, and that the same operation sent once more, by then to an honest provider, never
has a second effect.
"""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from ledger import outcomes
from tests.providers import conftest

# rule, outcome, its reason, effects afterwards
UNKNOWN: list[tuple[dict[str, Any], str, int]] = [
    ({"do": "error_before"}, "status_500", 0),
    ({"do": "error_before", "status": 503}, "status_503", 0),
    ({"do": "error_after"}, "status_500", 1),
    ({"do": "stored_500"}, "status_500", 0),
    ({"do": "stored_500", "applied": True}, "status_500", 1),
    ({"do": "drop_before"}, "broken_answer", 0),
    ({"do": "drop_after"}, "broken_answer", 1),
    ({"do": "hang"}, "deadline", 0),
    ({"do": "drip", "interval": 0.05}, "deadline", 1),
    ({"do": "drip", "interval": 0.05, "part": "body"}, "deadline", 1),
    ({"do": "truncate"}, "broken_answer", 1),
    ({"do": "garbage"}, "unreadable_answer", 1),
    ({"do": "garbage", "hex": "00ff80"}, "unreadable_answer", 1),
    ({"do": "garbage", "text": "[" * 30_000}, "unreadable_answer", 1),
    ({"do": "wrong_type"}, "other_content_type", 1),
    ({"do": "huge"}, "answer_too_large", 1),
    ({"do": "gzipped"}, "encoded_answer", 1),
    ({"do": "redirect"}, "status_302", 0),
    ({"do": "redirect", "status": 307}, "status_307", 0),
    ({"do": "in_flight"}, "in_flight", 0),
    ({"do": "refuse", "status": 408, "code": "slow"}, "status_408", 0),
    ({"do": "refuse", "status": 418, "code": "teapot"}, "status_418", 0),
    ({"do": "refuse", "status": 401, "code": "who"}, "status_401", 0),
    ({"do": "refuse", "code": "no\0code"}, "unreadable_answer", 0),
    ({"do": "other_operation"}, "other_operation", 1),
    ({"do": "other_subject"}, "other_subject", 1),
]
MONEY_UNKNOWN: list[tuple[dict[str, Any], str]] = [
    ({"do": "other_amount"}, "other_amount_minor"),
    ({"do": "other_amount", "by": 2**70}, "other_amount_minor"),
    ({"do": "other_currency"}, "other_currency"),
]


def test_honest_answer_is_confirmed(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox
):
    outcome = operation.do(operation.call)

    assert isinstance(outcome, outcomes.Confirmed)
    (effect,) = sandbox.effects(operation.id)
    assert (effect["id"], effect["kind"]) == (outcome.ref, operation.kind)
    assert effect["subject"] == operation.call.arguments["subject"]
    assert effect["amount_minor"] == operation.call.arguments.get("amount_minor")
    (request,) = sandbox.requests(operation.id)
    assert (request["kind"], request["status"], request["action"]) == (operation.kind, 201, "")
    if operation.kind == "capture":
        assert outcome.cost == outcomes.Money(12_345 * 14 // 1000 + 25, "EUR")
    else:
        assert outcome.cost is None


def test_same_operation_again_is_the_same_effect(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox
):
    first, second = operation.do(operation.call), operation.do(operation.call)

    assert isinstance(first, outcomes.Confirmed)
    assert isinstance(second, outcomes.Confirmed)
    assert second.ref == first.ref
    assert second.data == {**first.data, "replayed": True}
    assert len(sandbox.effects(operation.id)) == 1


@pytest.mark.parametrize(("rule", "reason", "effects"), UNKNOWN, ids=str)
def test_doubtful_ending_is_unknown(
    operation: conftest.Operation,
    sandbox: conftest.RunningSandbox,
    rule: dict[str, Any],
    reason: str,
    effects: int,
):
    sandbox.rule(**rule, operation=operation.id, times=1)

    outcome = operation.do(conftest.hurried(operation.call))

    assert isinstance(outcome, outcomes.Unknown), outcome
    assert outcome.reason == reason
    assert len(sandbox.effects(operation.id)) == effects
    assert len(sandbox.requests(operation.id)) == 1, "one wire request per call"
    assert_storable(outcome.data)

    operation.do(operation.call)
    assert len(sandbox.effects(operation.id)) <= 1


@pytest.mark.parametrize(("rule", "reason"), MONEY_UNKNOWN, ids=str)
@pytest.mark.parametrize("kind", ["capture", "refund"])
def test_other_money_is_unknown_and_keeps_the_answer(
    sandbox: conftest.RunningSandbox, kind: str, rule: dict[str, Any], reason: str
):
    capture = conftest.capture_of()
    operation = capture if kind == "capture" else conftest.refund_of(capture)
    sandbox.rule(**rule, operation=operation.id)

    outcome = operation.do(operation.call)

    assert isinstance(outcome, outcomes.Unknown)
    assert outcome.reason == reason
    (effect,) = sandbox.effects(operation.id)
    assert effect["id"] in outcome.data["text"], "the proof of a payment is kept"
    assert outcome.data["status"] == 201
    assert len(outcome.data["sha256"]) == 64


@pytest.mark.parametrize("status", [400, 402, 403, 404, 409, 410, 422])
def test_refusal_is_refused_for_good(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox, status: int
):
    sandbox.rule("refuse", operation=operation.id, status=status, code="card_declined", times=1)

    first, second = operation.do(operation.call), operation.do(operation.call)

    for outcome in (first, second):
        assert isinstance(outcome, outcomes.Refused)
        assert outcome.reason == "card_declined"
        assert outcome.data["status"] == status
    assert sandbox.effects(operation.id) == []
    sighted = operation.find(operation.call)
    assert isinstance(sighted, outcomes.Refused)
    assert sighted.reason == "card_declined"


@pytest.mark.parametrize(
    ("rule", "seconds"),
    [
        ({"retry_after": 7}, 7),
        ({"retry_after": 0}, 1),
        ({"retry_after": -1}, 5),
        ({"retry_after": "abc"}, 5),
        ({"retry_after": 10**9}, 3600),
        ({"retry_after": "9" * 300}, 3600),
        ({"retry_after": None}, 5),
        ({"retry_after_date": -60}, 1),
        ({"retry_after_date": 10**6}, 3600),
    ],
    ids=str,
)
def test_throttled_for_a_bounded_time(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox, rule: Any, seconds: int
):
    sandbox.rule("throttle", operation=operation.id, times=1, **rule)

    outcome = operation.do(operation.call)

    assert isinstance(outcome, outcomes.Throttled)
    assert outcome.after == timedelta(seconds=seconds)
    assert sandbox.effects(operation.id) == []
    assert isinstance(operation.do(operation.call), outcomes.Confirmed)


def test_throttled_until_a_date_counts_by_the_providers_clock(sandbox: conftest.RunningSandbox):
    operation = conftest.ticket_of()
    sandbox.rule("throttle", operation=operation.id, retry_after_date=90)

    outcome = operation.do(operation.call)

    assert isinstance(outcome, outcomes.Throttled)
    assert timedelta(seconds=88) <= outcome.after <= timedelta(seconds=91)


def test_delayed_answer_in_time_is_confirmed(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox
):
    sandbox.rule("delay", operation=operation.id, seconds=0.3)
    assert isinstance(operation.do(operation.call), outcomes.Confirmed)


def test_reused_key_is_a_contradiction_and_not_a_refusal(sandbox: conftest.RunningSandbox):
    operation = conftest.capture_of()
    operation.do(operation.call)
    other = {**operation.call.arguments, "amount_minor": 1}

    outcome = operation.do(dataclasses.replace(operation.call, arguments=other))

    assert isinstance(outcome, outcomes.Unknown)
    assert outcome.reason == "key_reused"
    (effect,) = sandbox.effects(operation.id)
    assert effect["amount_minor"] == 12_345


def test_doubled_reply_never_answers_the_next_operation(sandbox: conftest.RunningSandbox):
    first, second = conftest.ticket_of(), conftest.ticket_of()
    sandbox.rule("duplicate", operation=first.id)
    assert isinstance(first.do(first.call), outcomes.Confirmed)

    outcome = second.do(second.call)

    found = second.find(second.call)
    assert isinstance(found, outcomes.Confirmed)
    if isinstance(outcome, outcomes.Confirmed):  # the connection was given up in time
        assert outcome.ref == found.ref
    else:
        assert isinstance(outcome, outcomes.Unknown)
        assert outcome.reason == "unsolicited_answer"
    assert len(sandbox.effects(second.id)) == 1


def assert_storable(data: Any) -> None:
    text = repr(data)
    assert "\\x00" not in text
    assert "\\ud8" not in text
    assert len(text) < 5000

"""A tombstone: the operation id is refused from now on, unless it has happened; a doubtful answer says nothing."""

import dataclasses
from typing import Any

import pytest

from bookings import payments, tickets
from ledger import outcomes, saga
from tests.providers import conftest

# rule, reason; none of them tells whether the tombstone was taken
DOUBTFUL: list[tuple[dict[str, Any], str]] = [
    ({"do": "refuse", "status": 403, "code": "forbidden"}, "other_answer"),
    ({"do": "refuse", "status": 404, "code": "no_such_operation"}, "other_answer"),
    ({"do": "refuse", "status": 409, "code": "already_done"}, "other_answer"),
    ({"do": "refuse", "status": 410, "code": "tombstoned"}, "other_answer"),
    ({"do": "in_flight"}, "other_answer"),
    ({"do": "error_before"}, "status_500"),
    ({"do": "error_after"}, "status_500"),
    ({"do": "drop_before"}, "broken_answer"),
    ({"do": "drop_after"}, "broken_answer"),
    ({"do": "hang"}, "deadline"),
    ({"do": "garbage"}, "unreadable_answer"),
    ({"do": "truncate"}, "broken_answer"),
    ({"do": "wrong_type"}, "other_content_type"),
    ({"do": "redirect"}, "status_302"),
    ({"do": "other_operation"}, "other_operation"),
]


def bury(operation: conftest.Operation, call: saga.Call | None = None) -> outcomes.Outcome:
    handler = tickets.bury if operation.kind == "ticket" else payments.bury
    return handler(call or operation.call)


def test_both_effects_declare_it() -> None:
    assert payments.EFFECT.tombstone is payments.bury
    assert tickets.EFFECT.tombstone is tickets.bury


def test_buried_operation_is_refused_for_good(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox
):
    for outcome in (bury(operation), bury(operation)):
        assert isinstance(outcome, outcomes.Refused)
        assert outcome.reason == "tombstoned"
        assert outcome.data["status"] == 200

    late = operation.do(operation.call)

    assert isinstance(late, outcomes.Refused)
    assert (late.reason, late.data["status"]) == ("tombstoned", 410)
    assert sandbox.effects(operation.id) == []
    kinds = [row["kind"] for row in sandbox.requests(operation.id)]
    assert kinds == ["tombstone", "tombstone", operation.kind], "one wire request per call"


def test_request_that_arrives_after_the_tombstone_has_no_effect(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox
):
    sandbox.rule("hold", match=operation.kind, operation=operation.id, seconds=60)
    assert isinstance(operation.do(conftest.hurried(operation.call)), outcomes.Unknown)
    assert isinstance(bury(operation), outcomes.Refused)

    assert sandbox.control("release") == {"released": 1}

    assert sandbox.effects(operation.id) == []
    assert isinstance(operation.find(operation.call), outcomes.Refused)


def test_operation_that_has_happened_is_confirmed_with_its_evidence(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox
):
    sandbox.rule("drop_after", match=operation.kind, operation=operation.id)
    assert isinstance(operation.do(operation.call), outcomes.Unknown)

    outcome = bury(operation)

    assert outcome == operation.find(operation.call)
    assert isinstance(outcome, outcomes.Confirmed)
    (effect,) = sandbox.effects(operation.id)
    assert outcome.ref == effect["id"]
    sandbox.be_honest()
    again = operation.do(operation.call)
    assert isinstance(again, outcomes.Confirmed), "its key is still honoured"
    assert len(sandbox.effects(operation.id)) == 1


@pytest.mark.parametrize(
    ("name", "value"), [("amount_minor", 1), ("currency", "JPY"), ("subject", "someone-else")]
)
def test_other_money_than_ours_is_unknown(
    sandbox: conftest.RunningSandbox, name: str, value: object
):
    operation = conftest.capture_of()
    operation.do(operation.call)
    arguments = {**operation.call.arguments, name: value}

    outcome = bury(operation, dataclasses.replace(operation.call, arguments=arguments))

    assert isinstance(outcome, outcomes.Unknown)
    assert outcome.reason == f"other_{name}"


def test_effect_of_another_kind_is_unknown(sandbox: conftest.RunningSandbox):
    capture, ticket = conftest.capture_of(), conftest.ticket_of()
    capture.do(capture.call)

    outcome = bury(ticket, capture.call)

    assert isinstance(outcome, outcomes.Unknown)
    assert outcome.reason == "other_answer"


@pytest.mark.parametrize(("rule", "reason"), DOUBTFUL, ids=str)
def test_doubtful_answer_is_unknown(
    operation: conftest.Operation,
    sandbox: conftest.RunningSandbox,
    rule: dict[str, Any],
    reason: str,
):
    sandbox.rule(**rule, operation=operation.id, match="tombstone")

    outcome = bury(operation, conftest.hurried(operation.call))

    assert isinstance(outcome, outcomes.Unknown), outcome
    assert outcome.reason == reason
    assert sandbox.effects(operation.id) == []
    assert len(sandbox.requests(operation.id)) == 1, "one wire request per call"


def test_throttled_tombstone_is_throttled(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox
):
    sandbox.rule("throttle", operation=operation.id, match="tombstone", times=1)
    assert isinstance(bury(operation), outcomes.Throttled)
    assert isinstance(operation.do(operation.call), outcomes.Confirmed), "nothing was buried"


def test_tombstone_that_never_left_is_not_sent(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox, settings: Any
):
    settings.PAYMENT_URL = settings.TICKET_URL = "http://127.0.0.1:1"
    assert isinstance(bury(operation), outcomes.NotSent)
    assert sandbox.requests(operation.id) == []

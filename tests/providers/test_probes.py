"""What a probe says about an operation, and that a doubtful probe says nothing."""

from typing import Any

import pytest

from ledger import outcomes
from tests.providers import conftest

DOUBTFUL: list[tuple[dict[str, Any], str]] = [
    ({"do": "refuse", "status": 403, "code": "forbidden"}, "probe_refused"),
    ({"do": "refuse", "status": 404, "code": "no_such_path"}, "probe_refused"),
    ({"do": "error_before"}, "status_500"),
    ({"do": "drop_before"}, "broken_answer"),
    ({"do": "hang"}, "deadline"),
    ({"do": "garbage"}, "unreadable_answer"),
    ({"do": "truncate"}, "broken_answer"),
    ({"do": "wrong_type"}, "other_content_type"),
    ({"do": "redirect"}, "status_302"),
    ({"do": "other_operation"}, "other_operation"),
    ({"do": "other_subject"}, "other_subject"),
]


def test_unknown_operation_has_not_landed(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox
):
    assert operation.find(operation.call) == outcomes.NotLanded()
    assert [row["kind"] for row in sandbox.requests(operation.id)] == ["probe"]
    assert sandbox.effects(operation.id) == []


def test_lost_reply_is_found_with_the_same_evidence(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox
):
    sandbox.rule("drop_after", operation=operation.id, match=operation.kind)
    assert isinstance(operation.do(operation.call), outcomes.Unknown)

    found = operation.find(operation.call)

    assert isinstance(found, outcomes.Confirmed)
    (effect,) = sandbox.effects(operation.id)
    assert found.ref == effect["id"]
    assert found.data.get("amount_minor") == effect["amount_minor"]
    assert found.data["subject"] == effect["subject"]
    sandbox.be_honest()
    again = operation.do(operation.call)
    assert isinstance(again, outcomes.Confirmed)
    assert (again.ref, again.cost) == (found.ref, found.cost)


@pytest.mark.parametrize(("rule", "reason"), DOUBTFUL, ids=str)
def test_doubtful_probe_is_unknown(
    operation: conftest.Operation,
    sandbox: conftest.RunningSandbox,
    rule: dict[str, Any],
    reason: str,
):
    operation.do(operation.call)
    sandbox.rule(**rule, operation=operation.id, match="probe")

    found = operation.find(conftest.hurried(operation.call))

    assert isinstance(found, outcomes.Unknown), found
    assert found.reason == reason
    assert len(sandbox.effects(operation.id)) == 1


def test_probe_that_shows_another_amount_is_unknown(sandbox: conftest.RunningSandbox):
    operation = conftest.capture_of()
    operation.do(operation.call)
    sandbox.rule("other_amount", match="probe", operation=operation.id)

    found = operation.find(operation.call)

    assert isinstance(found, outcomes.Unknown)
    assert found.reason == "other_amount_minor"


def test_probe_of_another_kind_is_unknown(sandbox: conftest.RunningSandbox):
    operation, other = conftest.capture_of(), conftest.ticket_of()
    operation.do(operation.call)

    found = other.find(operation.call)

    assert isinstance(found, outcomes.Unknown)
    assert found.reason == "other_answer"


def test_throttled_probe_is_throttled(sandbox: conftest.RunningSandbox):
    operation = conftest.capture_of()
    sandbox.rule("throttle", match="probe", operation=operation.id, retry_after=3)
    assert isinstance(operation.find(operation.call), outcomes.Throttled)


def test_stale_probe_reads_not_landed_though_it_did(sandbox: conftest.RunningSandbox):
    """The client cannot tell; this is why the engine counts the probe lag."""
    operation = conftest.capture_of()
    operation.do(operation.call)
    sandbox.rule("stale", match="probe", operation=operation.id)
    assert operation.find(operation.call) == outcomes.NotLanded()


def test_tombstoned_operation_is_refused_and_found_refused(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox
):
    buried = sandbox.client.post(f"/v1/tombstones/{operation.id}")
    assert (buried.status_code, buried.json()["status"]) == (200, "tombstoned")

    for outcome in (operation.do(operation.call), operation.find(operation.call)):
        assert isinstance(outcome, outcomes.Refused)
        assert outcome.reason == "tombstoned"
    assert sandbox.effects(operation.id) == []


def test_tombstone_comes_too_late_for_an_effect(
    operation: conftest.Operation, sandbox: conftest.RunningSandbox
):
    done = operation.do(operation.call)
    assert isinstance(done, outcomes.Confirmed)

    late = sandbox.client.post(f"/v1/tombstones/{operation.id}")

    assert late.status_code == 409
    assert late.json()["effect"]["id"] == done.ref
    assert isinstance(operation.do(operation.call), outcomes.Confirmed)

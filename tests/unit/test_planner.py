"""One row a case: what a job with this journal does next. Nothing is guessed."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from ledger import actions, operations, planner, saga
from ledger.operations import Entry, Receipt
from tests import histories
from tests.histories import BACKWARD, effect, history, plan, seen, told

PROBED: dict[str, Any] = {"effect": effect(probe=print), "undo_effect": effect(probe=print)}
KEYLESS: dict[str, Any] = {
    "effect": effect(key_lifetime=None),
    "undo_effect": effect(key_lifetime=None),
}
LOCAL: dict[str, Any] = {"effect": saga.LOCAL, "undo_effect": saga.LOCAL}


@pytest.mark.parametrize(
    ("entries", "options", "expected"),
    [
        ("", {}, ("send", "room", "forward", 1)),
        ("room+", {}, ("send", "payment", "forward", 1)),
        ("room+", LOCAL, ("local", "payment", "forward", 1)),
        ("room+ payment+", {}, ("send", "ticket", "forward", 1)),
        ("room+ payment+ ticket+", {}, ("send", "mail", "forward", 1)),
        ("room+ payment+ ticket+ mail+", {}, ("finish", "confirmed")),
        # a refusal, the pivot's too, turns the job; past the pivot it waits for a person
        ("room-", {}, ("turn",)),
        ("room+ payment-", {}, ("turn",)),
        ("room+ payment+ ticket-", {}, ("turn",)),
        ("room+ payment+ ticket+ mail-", {}, ("park", "refused_after_pivot", "mail:forward")),
        # proved unsent: again later, until the budget is spent
        ("room+ payment.", {"attempts": 2}, ("send", "payment", "forward", 2)),
        ("room+ payment..", {"attempts": 2}, ("turn",)),
        ("room+ payment..", {**LOCAL, "attempts": 3}, ("local", "payment", "forward", 3)),
        ("room+ paymentrrrr.", {"attempts": 2}, ("send", "payment", "forward", 6)),
        ("room+ paymenttttt.", {"attempts": 2}, ("send", "payment", "forward", 6)),
        ("room+ payment+ ticket+ mail.....", {}, ("park", "exhausted", "mail:forward")),
        # in doubt, no probe: the same id again while the key lives and the budget lasts
        ("room+ payment?", {}, ("send", "payment", "forward", 2)),
        ("room+ payment!", {}, ("send", "payment", "forward", 2)),
        ("room+ payment?.", {}, ("send", "payment", "forward", 3)),
        ("room+ payment??", {"attempts": 2}, ("park", "unknown_outcome", "payment:forward")),
        ("room+ payment?.", {"attempts": 2}, ("park", "unknown_outcome", "payment:forward")),
        ("room+ payment?", KEYLESS, ("park", "unknown_outcome", "payment:forward")),
        # where there is a probe, it is asked first
        ("room+ payment?", PROBED, ("ask", "payment", "forward", 1)),
        ("room+ payment!", PROBED, ("ask", "payment", "forward", 1)),
        ("room+ payment?.", PROBED, ("ask", "payment", "forward", 2)),
        # a final receipt ends the doubt, whatever came before it
        ("room+ payment?+", {}, ("send", "ticket", "forward", 1)),
        ("room+ payment!-", {}, ("turn",)),
        # a journal that this definition cannot read
        ("room+ gone+", {}, ("park", "unsupported_version", "gone")),
    ],
)
def test_going_forward(entries: str, options: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert told(plan(history(entries), of=histories.definition(**options))) == expected


@pytest.mark.parametrize(
    ("entries", "options", "expected"),
    [
        ("", {}, ("finish", "refused")),
        ("room-", {}, ("finish", "refused")),
        ("room.", {}, ("finish", "refused")),
        ("roomt", {}, ("finish", "refused")),
        ("room+", {}, ("send", "room", "backward", 1)),
        ("room+ payment-", {}, ("send", "room", "backward", 1)),
        ("room+ paymentt", {}, ("send", "room", "backward", 1)),
        ("room+ payment+", {}, ("send", "payment", "backward", 1)),
        ("room+ payment+", LOCAL, ("local", "payment", "backward", 1)),
        ("room+ payment+ ~payment+", {}, ("send", "room", "backward", 1)),
        ("room+ payment+ ~payment+ ~room+", {}, ("finish", "compensated")),
        ("room+ payment- ~room+", {}, ("finish", "compensated")),
        # a forward operation in doubt is settled first and holds up earlier undos
        ("room+ payment?", {}, ("park", "unknown_outcome", "payment:forward")),
        ("room+ payment!", {}, ("park", "unknown_outcome", "payment:forward")),
        ("room+ payment?.", {}, ("park", "unknown_outcome", "payment:forward")),
        ("room+ payment?", PROBED, ("ask", "payment", "forward", 1)),
        # a blocked undo does not
        ("room+ payment+ ~payment-", {}, ("send", "room", "backward", 1)),
        (
            "room+ payment+ ~payment- ~room+",
            {},
            ("park", "compensation_failed", "payment:backward"),
        ),
        ("room+ payment+ ~payment?", KEYLESS, ("send", "room", "backward", 1)),
        (
            "room+ payment+ ~payment? ~room+",
            KEYLESS,
            ("park", "unknown_outcome", "payment:backward"),
        ),
        (
            "room+ payment+ ~payment.. ~room+",
            {"undo_attempts": 2},
            ("park", "compensation_failed", "payment:backward"),
        ),
        ("room+ payment+ ~payment..", {"undo_attempts": 2}, ("send", "room", "backward", 1)),
        ("room+ payment+", {"undo": None}, ("send", "room", "backward", 1)),
        (
            "room+ payment+ ~room+",
            {"undo": None},
            ("park", "compensation_failed", "payment:backward"),
        ),
        (
            "room+ payment+ ~room+",
            {"undo": saga.NotUndoable("x")},
            ("park", "compensation_failed", "payment:backward"),
        ),
        # an undo in doubt
        ("room+ payment+ ~payment?", {}, ("send", "payment", "backward", 2)),
        ("room+ payment+ ~payment!", {}, ("send", "payment", "backward", 2)),
        ("room+ payment+ ~payment?", PROBED, ("ask", "payment", "backward", 1)),
        ("room+ payment+ ~paymentr", {"undo_attempts": 1}, ("send", "payment", "backward", 2)),
        ("room+ gone+", {}, ("park", "unsupported_version", "gone")),
    ],
)
def test_going_backward(entries: str, options: dict[str, Any], expected: tuple[Any, ...]) -> None:
    action = plan(history(entries), direction=BACKWARD, of=histories.definition(**options))
    assert told(action) == expected


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ("", ("finish", "refused")),
        ("room-", ("finish", "refused")),
        ("room.", ("finish", "refused")),
        ("room+", ("wait", "compensation")),
        ("room?", ("wait", "compensation")),
        ("room!", ("wait", "compensation")),
    ],
)
def test_a_job_turned_in_the_forward_lane_changes_lane_only_for_work(
    entries: str, expected: tuple[Any, ...]
) -> None:
    assert told(plan(history(entries), direction=BACKWARD, lane="forward")) == expected


@pytest.mark.parametrize(
    ("text", "sightings", "expected"),
    [
        (
            "room+ payment?",
            [seen("payment", "probe", "confirmed")],
            ("record", "payment", "forward", "confirmed"),
        ),
        (
            "room+ payment?",
            [seen("payment", "probe", "refused")],
            ("record", "payment", "forward", "refused"),
        ),
        (
            "room+ payment!",
            [seen("payment", "late", "confirmed", 9)],
            ("record", "payment", "forward", "confirmed"),
        ),
        (
            "room+ payment!",
            [seen("payment", "sender_lost", "unknown")],
            ("ask", "payment", "forward", 1),
        ),
        (
            "room+ payment?",
            [seen("payment", "probe", "not_landed")],
            ("send", "payment", "forward", 2),
        ),
        (
            "room+ payment?",
            [seen("payment", "probe", "unknown", 99)],
            ("ask", "payment", "forward", 1),
        ),
        ("room+ payment?", [seen("payment", "probe", "unknown")], ("wait", "forward")),
        (
            "room+ payment?",
            [seen("payment", "probe", "unknown", 99)] * 5,
            ("send", "payment", "forward", 2),
        ),
        # a throttled question uses no budget, and is asked again when the provider said (here: after a second)
        (
            "room+ payment?",
            [seen("payment", "probe", "throttled", 99)] * 9,
            ("ask", "payment", "forward", 1),
        ),
        ("room+ payment?", [seen("payment", "probe", "throttled", 0.7)], ("wait", "forward")),
        # and what a worker that had lost the job brings from long before shortens no wait
        *(
            (
                "room+ payment?",
                [
                    seen("payment", "probe", "throttled", 10, after_seconds="60"),
                    seen("payment", "probe", outcome, 9),
                ],
                ("wait", "forward"),
            )
            for outcome in ("not_sent", "unknown", "throttled")
        ),
        # a question that was given back unasked uses no budget
        (
            "room+ payment?",
            [seen("payment", "probe", "not_sent", 99, released=True)] * 9,
            ("ask", "payment", "forward", 1),
        ),
        # against what is settled: a person has to say what is true
        (
            "room+ payment+",
            [seen("payment", "late", "refused")],
            ("park", "contradiction", "payment:forward"),
        ),
        (
            "room+ payment+",
            [seen("payment", "probe", "confirmed", ref="another effect")],
            ("park", "contradiction", "payment:forward"),
        ),
        (
            "room+ payment+",
            [seen("payment", "late", "confirmed")],
            ("send", "ticket", "forward", 1),
        ),
    ],
)
def test_evidence_decides_first(
    text: str, sightings: list[Entry], expected: tuple[Any, ...]
) -> None:
    assert told(plan([*history(text), *sightings], of=histories.definition(**PROBED))) == expected


@pytest.mark.parametrize(("ago", "verb"), [(80, "send"), (89, "send"), (91, "park"), (100, "park")])
def test_a_key_is_used_for_nine_tenths_of_its_lifetime_from_the_first_attempt_in_doubt(
    ago: float, verb: str
) -> None:
    short = histories.definition(effect=effect(key_lifetime=timedelta(seconds=100)))
    entries = [*history("room+", 3600), *history("payment?", ago)]
    assert told(plan(entries, of=short))[0] == verb


@pytest.mark.parametrize(("sign", "verb"), [(".", "send"), ("?", "park")])
def test_only_an_attempt_not_proved_unsent_starts_the_lifetime(sign: str, verb: str) -> None:
    short = histories.definition(effect=effect(key_lifetime=timedelta(seconds=100)))
    first = history(f"payment{sign}", 500)
    second = [histories.attempt("payment", 2, at=histories.NOW - timedelta(seconds=80))]
    assert told(plan([*history("room+"), *first, *second], of=short))[0] == verb


@pytest.mark.parametrize(
    ("text", "ago", "least", "most"),
    [
        ("payment.", 0, 1, 2),  # base 2 s, jittered by half
        ("payment..", 0, 2, 4),
        ("payment....", 0, 8, 16),
        ("payment?", 0, 1, 2),
        ("paymentt", 0, 30, 37.5),  # what the provider asked for, and up to a quarter more
        ("paymentt", 10, 20, 27.5),
    ],
)
def test_the_wait_before_the_same_call_again(
    text: str, ago: float, least: float, most: float
) -> None:
    action = plan([*history("room+"), *history(text, ago)])
    assert isinstance(action, actions.Wait)
    assert least <= action.delay.total_seconds() <= most
    assert action.lane == "forward"


def test_the_wait_doubles_to_a_cap_and_is_the_same_on_every_look() -> None:
    many = histories.definition(attempts=50)
    waits = [
        plan([*history("room+"), *history("payment" + "." * 40, 0)], of=many) for _ in range(2)
    ]
    assert waits[0] == waits[1]
    assert isinstance(waits[0], actions.Wait)
    assert timedelta(seconds=30) <= waits[0].delay <= timedelta(seconds=60)


@pytest.mark.parametrize("text", ["paymentr", "payment!"])
def test_what_was_released_or_whose_sender_died_waits_for_nothing(text: str) -> None:
    assert told(plan([*history("room+"), *history(text, 0)])) == ("send", "payment", "forward", 2)


def test_a_resend_carries_the_arguments_frozen_with_attempt_1() -> None:
    action = plan(history("room+ payment?."))
    assert isinstance(action, actions.Send)
    assert (action.n, action.arguments) == (3, histories.INPUT)
    assert action.fingerprint == histories.attempt("payment").fingerprint


def test_arguments_derived_otherwise_are_a_conflict_that_names_the_fields() -> None:
    def other(_input: Any, _done: Mapping[str, saga.Done]) -> Mapping[str, Any]:
        return {"amount_minor": 13_000, "currency": "EUR"}

    action = plan(history("room+ payment?"), of=histories.definition(arguments=other))
    assert isinstance(action, actions.Park)
    assert told(action) == ("park", "conflict", "payment:forward")
    assert "/amount_minor: stored 12000, new 13000" in action.detail


def test_later_arguments_are_derived_from_earlier_receipts() -> None:
    def of_room(_input: Any, done: Mapping[str, saga.Done]) -> Mapping[str, Any]:
        return {"holder": done["room"].ref}

    action = plan(history("room+"), of=histories.definition(arguments=of_room))
    assert isinstance(action, actions.Send)
    assert action.arguments == {"holder": "ref"}


@pytest.mark.parametrize(
    ("text", "sends", "expected"),
    [
        ("room+", None, False),
        ("room+ payment+", "ticket", True),
        ("room+ payment+", "payment", False),
        ("room+ payment+ ticket!", None, True),
        ("room+ payment+ ticket?", None, True),
        ("room+ payment+ ticket+", None, True),
        ("room+ payment+ ticket-", None, False),
        ("room+ payment+ ticket.", None, False),
        ("room+ payment+ tickett", None, False),
    ],
)
def test_the_point_of_no_return(text: str, sends: str | None, expected: bool) -> None:
    assert (
        planner.pivot_may_be_sent(histories.definition(), operations.fold(history(text)), sends)
        is expected
    )


def test_patience_for_no_time_is_still_a_pause() -> None:
    """Throttled attempts use no budget: without a pause, they would be sent as fast as they are refused."""
    entries = [*history("room+ paymentt", ago=1.0)]
    at_once = {"after_seconds": "0.0"}
    entries[-1] = replace(cast("Receipt", entries[-1]), evidence=at_once)
    assert told(plan(entries)) == ("wait", "forward")

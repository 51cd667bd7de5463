"""One row a case: what becomes of an operation in doubt, of a contradiction, and of what a person says about either."""

from datetime import timedelta
from typing import Any

import pytest

from ledger import actions, saga
from tests import histories
from tests.histories import BACKWARD, effect, history, plan, resolved, seen, told

PROBED: dict[str, Any] = {"effect": effect(probe=print), "undo_effect": effect(probe=print)}
KEYLESS: dict[str, Any] = {
    "effect": effect(key_lifetime=None),
    "undo_effect": effect(key_lifetime=None),
}
LOCAL: dict[str, Any] = {"effect": saga.LOCAL, "undo_effect": saga.LOCAL}
ASKABLE: dict[str, Any] = {"effect": effect(probe=print, key_lifetime=None)}
WAIVED: dict[str, Any] = {
    "effect": effect(probe=print, key_lifetime=None, late_probe_suffices=True)
}


@pytest.mark.parametrize(
    ("text", "asked", "options", "expected"),
    [
        # sent 500 s ago, with a request lifetime of 120 s
        ("payment?", 390, ASKABLE, ("ask", "payment", "forward", 1)),  # asked too early: again
        ("payment?", 370, ASKABLE, ("send", "payment", "forward", 2)),
        # its thread was given up 500 s ago and may send yet: its call deadline of 8 s counts from there
        ("paymenta", 375, ASKABLE, ("ask", "payment", "forward", 1)),
        ("paymenta", 370, ASKABLE, ("park", "unknown_outcome", "payment:forward")),
        ("paymenta", 370, WAIVED, ("send", "payment", "forward", 2)),
        # nobody knows when its sender died
        ("payment!", 370, ASKABLE, ("park", "unknown_outcome", "payment:forward")),
        # the budget is spent: proved not to have happened, so the job goes back
        ("payment?", 370, {**ASKABLE, "attempts": 1}, ("record", "payment", "forward", "refused")),
    ],
)
def test_without_a_key_only_a_late_negative_probe_allows_to_send_again(
    text: str, asked: float, options: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    entries = [
        *history("room+"),
        *history(text, 500),
        seen("payment", "probe", "not_landed", asked),
    ]
    assert told(plan(entries, of=histories.definition(**options))) == expected


def test_an_early_negative_probe_waits_for_the_time_when_nothing_lands_any_more() -> None:
    entries = [*history("room+ payment?", 20), seen("payment", "probe", "not_landed", 19)]
    action = plan(entries, of=histories.definition(**ASKABLE))
    assert action == actions.Wait(timedelta(seconds=100), "forward")


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("owner_dead", ("send", "payment", "forward", 2)),
        ("lease_expired", ("park", "unknown_outcome", "payment:forward")),
    ],
)
def test_a_sender_is_done_when_it_is_known_to_be_dead(how: str, expected: tuple[Any, ...]) -> None:
    lost = seen(
        "payment", "sender_lost", "unknown", 500, how=how, lease_until="2025-12-31 23:50:00+00"
    )
    entries = [*history("room+ payment!", 900), lost, seen("payment", "probe", "not_landed", 300)]
    assert told(plan(entries, of=histories.definition(**ASKABLE))) == expected


def test_a_sender_that_came_back_late_is_done() -> None:
    late = seen("payment", "late", "unknown", 450)
    entries = [*history("room+ paymenta", 500), late, seen("payment", "probe", "not_landed", 300)]
    action = plan(entries, of=histories.definition(**ASKABLE))
    assert told(action) == ("send", "payment", "forward", 2)


def test_a_sender_that_was_given_up_after_its_job_was_lost_is_not_done() -> None:
    lost = seen(
        "payment",
        "sender_lost",
        "unknown",
        495,
        how="lease_expired",
        lease_until="2025-12-31 23:50:00+00",
    )
    given_up = seen("payment", "late", "unknown", 494, abandoned=True)
    asked = seen("payment", "probe", "not_landed", 300)
    entries = [*history("room+ payment!", 500), lost, given_up, asked]
    action = plan(entries, of=histories.definition(**ASKABLE))
    assert told(action) == ("park", "unknown_outcome", "payment:forward")


def test_evidence_is_taken_before_arguments_are_derived() -> None:
    """Otherwise who sends the job on for it would do so for ever."""

    def other(_input: Any, _done: Any) -> dict[str, Any]:
        return {"amount_minor": 13_000, "currency": "EUR"}

    entries = [*history("room+ payment?", 60), seen("payment", "late", "confirmed", 50)]
    action = plan(entries, of=histories.definition(arguments=other))
    assert told(action) == ("record", "payment", "forward", "confirmed")


def test_an_undo_in_doubt_of_what_a_person_ruled_not_done_is_settled_too() -> None:
    entries = [
        *history("room+ payment+ ~payment? ~room+", 60),
        resolved("payment", "not-done", 30),
    ]

    def of_the_payment(_input: Any, done: Any) -> dict[str, Any]:
        return {"capture": done["payment"].ref}

    made = histories.definition(**KEYLESS, undo_arguments=of_the_payment)
    action = plan(entries, direction=BACKWARD, of=made)
    assert told(action) == ("park", "unknown_outcome", "payment:backward")


@pytest.mark.parametrize("ticket", ["ticket+", "ticket?"])
def test_a_ruling_does_not_take_a_job_back_past_its_pivot(ticket: str) -> None:
    entries = [*history(f"room+ payment+ {ticket}", 60), resolved("payment", "not-done", 30)]
    assert told(plan(entries)) == ("park", "refused_after_pivot", "payment:forward")


def test_a_sender_that_came_back_late_and_unsent_leaves_no_doubt() -> None:
    entries = [*history("room+ payment!", 500), seen("payment", "late", "not_sent", 450)]
    action = plan(entries, of=histories.definition(**KEYLESS))
    assert told(action) == ("send", "payment", "forward", 2)


@pytest.mark.parametrize(
    ("sightings", "promises", "expected"),
    [
        ([], {"probe": print, "tombstone": print}, ("ask", "payment", "forward", 1)),
        (["not_landed"], {"probe": print, "tombstone": print}, ("bury", "payment", "forward", 1)),
        ([], {"tombstone": print}, ("bury", "payment", "forward", 1)),
        (["not_landed"], {"probe": print}, ("wait", "compensation")),
        ([], {"resend_to_learn": True}, ("send", "payment", "forward", 2)),
        (
            [],
            {"resend_to_learn": True, "key_lifetime": None},
            ("park", "unknown_outcome", "payment:forward"),
        ),
        (["not_landed"], {"probe": print, "resend_to_learn": True}, ("wait", "compensation")),
    ],
)
def test_going_back_an_unknown_forward_call_is_settled_and_never_simply_repeated(
    sightings: list[str], promises: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    entries = [
        *history("room+ payment?", 60),
        *(seen("payment", "probe", o, 50) for o in sightings),
    ]
    made = histories.definition(effect=effect(**promises))
    assert told(plan(entries, direction=BACKWARD, of=made)) == expected


@pytest.mark.parametrize(
    ("kind", "outcome", "expected"),
    [
        ("tombstone", "refused", ("record", "payment", "forward", "refused")),
        ("tombstone", "confirmed", ("record", "payment", "forward", "confirmed")),
        ("tombstone", "unknown", ("wait", "compensation")),
    ],
)
def test_what_a_tombstone_says(kind: str, outcome: str, expected: tuple[Any, ...]) -> None:
    made = histories.definition(effect=effect(tombstone=print))
    entries = [*history("room+ payment?", 60), seen("payment", kind, outcome, 0.1)]
    assert told(plan(entries, direction=BACKWARD, of=made)) == expected


def test_going_back_a_late_negative_probe_is_a_refusal_with_its_evidence() -> None:
    entries = [*history("room+ payment?", 500), seen("payment", "probe", "not_landed", 300)]
    action = plan(entries, direction=BACKWARD, of=histories.definition(**PROBED))
    assert isinstance(action, actions.Record)
    assert told(action) == ("record", "payment", "forward", "refused")
    assert set(action.evidence) == {"reason", "seen_by", "asked_at", "nothing_lands_after"}


@pytest.mark.parametrize("end", ["room+ payment- ~room+", "room+ payment+ ~payment+ ~room+"])
def test_a_contradicted_job_does_not_end_backward_either(end: str) -> None:
    against = "confirmed" if "payment-" in end else "refused"
    entries = [*history(end), seen("payment", "late", against)]
    action = plan(entries, direction=BACKWARD)
    assert told(action) == ("park", "contradiction", "payment:forward")


@pytest.mark.parametrize(
    ("text", "options", "act", "expected"),
    [
        ("room+ payment?", KEYLESS, "done", ("send", "ticket", "forward", 1)),
        ("room+ payment?", KEYLESS, "not-done", ("turn",)),
        ("room+ payment??", {"attempts": 2}, "retry", ("send", "payment", "forward", 3)),
        ("room+ payment?", PROBED, "ask", ("ask", "payment", "forward", 1)),
        ("room+ payment?", KEYLESS, "note", ("park", "unknown_outcome", "payment:forward")),
        ("room+ payment?", KEYLESS, "retry", ("park", "unknown_outcome", "payment:forward")),
        ("room+ payment+ ticket+ mail.....", {}, "retry", ("park", "exhausted", "mail:forward")),
    ],
)
def test_what_a_person_says_counts(
    text: str, options: dict[str, Any], act: str, expected: tuple[Any, ...]
) -> None:
    entries = [*history(text), resolved("payment", act)]
    assert told(plan(entries, of=histories.definition(**options))) == expected


def test_a_local_step_in_doubt_runs_again_once_a_person_says_so() -> None:
    made = histories.definition(**LOCAL)
    entries = history("room+ payment?", 60)
    assert told(plan(entries, of=made)) == ("park", "unknown_outcome", "payment:forward")
    retried = [*entries, resolved("payment", "retry", 30)]
    assert told(plan(retried, of=made)) == ("local", "payment", "forward", 2)
    again = [*retried, histories.attempt("payment", 2), *history("payment?", 0)[1:]]
    assert told(plan(again, of=made))[0] == "park"


def test_a_retried_undo_has_a_fresh_budget_and_waits_for_nothing() -> None:
    spent = "room+ payment+ ~payment.. ~room+"
    made = histories.definition(undo_attempts=2)
    entries = [*history(spent, 10), resolved("payment", "retry", 0, BACKWARD)]
    assert told(plan(entries, direction=BACKWARD, of=made)) == ("send", "payment", "backward", 3)
    again = [*entries, *history("~payment", 0)]
    assert told(plan(again, direction=BACKWARD, of=made)) == ("send", "payment", "backward", 3)


def test_a_ruling_outweighs_what_was_seen_before_it_and_not_what_comes_after() -> None:
    against = [*history("room+ payment+"), seen("payment", "late", "refused", 60)]
    ruled = [*against, resolved("payment", "done", 30, ref="ref")]
    assert told(plan(ruled)) == ("send", "ticket", "forward", 1)
    after = [*ruled, seen("payment", "probe", "refused", 5)]
    assert told(plan(after)) == ("park", "contradiction", "payment:forward")


def test_a_contradiction_is_asked_about_when_a_person_says_so() -> None:
    entries = [
        *history("room+ payment+"),
        seen("payment", "late", "refused", 60),
        resolved("payment", "ask", 30),
    ]
    probed = histories.definition(**PROBED)
    assert told(plan(entries, of=probed)) == ("ask", "payment", "forward", 1)
    answered = [*entries, seen("payment", "probe", "confirmed", 5)]
    assert told(plan(answered, of=probed)) == ("park", "contradiction", "payment:forward")


def test_the_pivot_is_proved_not_to_have_happened_before_the_job_turns() -> None:
    made = histories.definition("ticket", attempts=1, **ASKABLE)
    entries = [*history("room+ payment+ ticket?", 500), seen("ticket", "probe", "not_landed", 300)]
    assert told(plan(entries, of=made)) == ("record", "ticket", "forward", "refused")

"""The matrix judges rightly: honest code passes each case, and a planted fault of the engine fails the case meant for it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError

from config.management.commands import crash
from ledger import actions, calls, crashpoints, doubt, outcomes, planner, saga
from ledger.states import ParkedReason
from recovery.matrix import errand, faults, report, scripts, survey
from recovery.matrix.faults import Fault
from recovery.matrix.report import Report, Row

STEP = ("submit.", "call.", "local.", "settle.after")
pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.timeout(120)]


def small(*, effect: saga.Effect | saga.Local, **options: Any) -> saga.Saga:
    step = saga.Step("only", do=errand.outside, undo=errand.outside, effect=effect, **options)
    return saga.Saga("test.small", version=1, steps=[step])


@pytest.mark.parametrize(
    ("effect", "options"),
    [
        (errand.FULL, {}),
        (errand.ASKABLE, {}),
        (errand.SILENT, {"parks_when_unknown": True}),
        (errand.KEYED, {}),
        (saga.LOCAL, {}),
    ],
)
def test_each_kind_of_promise_is_kept(
    effect: saga.Effect | saga.Local, options: dict[str, Any]
) -> None:
    found = survey.survey(small(effect=effect, **options), "all good", STEP)
    assert [(str(r.fault), r.why) for r in found.results if r.why] == []
    kinds = set(faults.KINDS) - ({"vanish"} if effect == saga.LOCAL else set())
    assert {r.fault.kind for r in found.results} == kinds


def test_a_step_of_which_nothing_can_be_known_parks_and_is_done_once_at_most() -> None:
    silent = small(effect=errand.SILENT, parks_when_unknown=True)
    found = survey.survey(silent, "all good", "call.")
    killed = {str(r.fault): r.ended for r in found.results if r.fault.point == "call.after"}
    assert killed["kill at call.after@1"] == "parked unknown_outcome"
    assert killed["pause at call.after@1"] == "confirmed"  # its answer came late, and decided


def test_the_same_definition_has_the_same_cases() -> None:
    def cases() -> list[tuple[str, Fault]]:
        return [
            (r.script, r.fault)
            for r in survey.survey(small(effect=errand.KEYED), "all good", "submit.").results
        ]

    assert cases() == cases()


def test_scripts_come_from_the_shape() -> None:
    names = [script.name for script in scripts.of(errand.errand)]
    assert len(names) == len(set(names))
    for step in errand.errand.steps:
        assert f"{step.name} refused" in names


def resend_blindly(patch: pytest.MonkeyPatch) -> None:
    """What may have happened is sent again, though nobody honours its id."""
    again = doubt.Verdict.RESEND
    patch.setattr(doubt, "decide", lambda known: doubt.Decision(again, known.next_send_at))


def take_silence_for_refusal(patch: pytest.MonkeyPatch) -> None:
    """A call that nobody heard of again is taken for one that was refused."""
    honest = calls.outcome_of

    def outcome_of(handler: Any, call: saga.Call) -> outcomes.Sighted:
        found = honest(handler, call)
        return outcomes.Refused("silence") if isinstance(found, outcomes.Unknown) else found

    patch.setattr(calls, "outcome_of", outcome_of)


@pytest.mark.parametrize(
    ("plant", "effect", "fault", "why"),
    [
        (resend_blindly, errand.SILENT, "kill at call.after@1", "took effect more than once"),
        (
            take_silence_for_refusal,
            errand.KEYED,
            "lost-after at call.before@1",
            "no receipt says so",
        ),
    ],
)
def test_a_planted_fault_of_the_engine_fails(
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    effect: saga.Effect,
    fault: str,
    why: str,
) -> None:
    plant(monkeypatch)
    found = survey.survey(small(effect=effect, parks_when_unknown=True), "all good", "call.")
    (wrong,) = [r.why for r in found.results if str(r.fault) == fault]
    assert why in wrong


def test_a_fault_that_breaks_the_undisturbed_run_too_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every case would end as undisturbed."""
    parks = actions.Park(ParkedReason.CONFLICT, "")
    monkeypatch.setattr(planner, "_backward", lambda _context: parks)
    found = survey.survey(small(effect=errand.KEYED), "only refused", "call.")
    assert [r.why for r in found.results] == ["ended parked conflict, undisturbed"]


def test_a_point_that_nothing_reaches_fails_the_run() -> None:
    row = Row("in process", "a.saga", "claim.before", "kill", "", "confirmed", "undisturbed")
    whole = Report([row], set(crashpoints.POINTS))
    assert whole.has_passed
    short = Report([row], crashpoints.POINTS.keys() - {"claim.after"})
    assert not short.has_passed
    assert "Never reached: `claim.after`." in list(report.failures(short))
    assert not Report([], set(crashpoints.POINTS)).has_passed


@pytest.mark.parametrize("name", ["nowhere:saga", "ledger.saga:register", "bookings.saga:other"])
def test_what_is_no_saga_is_refused(name: str) -> None:
    with pytest.raises(CommandError, match="--saga"):
        crash._saga(name)

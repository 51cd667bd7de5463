"""Random journals, also such as no engine would write: one class each, by rules that are written down here once more; and
a job whose compensation failed is never a completed recovery.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from ledger import operations, standing
from ledger.operations import Entry, Operation, Resolution, Sighting
from ledger.saga import Direction
from ledger.standing import Standing
from ledger.states import JobState, ParkedReason
from tests import histories

STEPS = ("room", "payment", "ticket", "mail")
UNSETTLED = st.just("") | st.just("") | st.text("?.rt!", max_size=2)
DIRECTIONS = st.sampled_from(list(Direction))
ENDED = {JobState.CONFIRMED, JobState.REFUSED, JobState.COMPENSATED, JobState.CLOSED}


@dataclass(frozen=True)
class Drawn:
    job: standing.Job
    journal: list[Entry]

    def ops(self, direction: Direction) -> dict[str, Operation]:
        folded = operations.fold(self.journal)
        return {step: op for (step, of), op in folded.items() if of is direction}


@st.composite
def sightings(draw: st.DrawFn) -> Sighting:
    outcome = draw(st.sampled_from(["confirmed", "refused", "not_landed", "unknown"]))
    at = histories.NOW + timedelta(seconds=draw(st.integers(-60, 60)))
    return Sighting(draw(st.sampled_from(STEPS)), draw(DIRECTIONS), 1, "probe", outcome, {}, at)


@st.composite
def acts(draw: st.DrawFn) -> Resolution:
    of_job = draw(st.booleans())
    names = ["close-proposed", "close", "note"] if of_job else ["done", "not-done", "retry", "ask"]
    step = "" if of_job else draw(st.sampled_from(STEPS))
    by = draw(st.sampled_from(["ann", "bob"]))
    at = histories.NOW + timedelta(seconds=draw(st.integers(-60, 60)))
    return Resolution(step, draw(DIRECTIONS), draw(st.sampled_from(names)), by, {}, at)


def close(name: str, by: str) -> Resolution:
    return Resolution("", Direction.FORWARD, name, by, {}, histories.NOW)


CLOSED: st.SearchStrategy[list[Any]] = st.just(
    [close("close-proposed", "ann"), close("close", "bob")]
)
EXTRA: st.SearchStrategy[list[Any]] = (
    st.just([]) | st.just([]) | CLOSED | st.lists(sightings() | acts(), max_size=3)
)
SHAPES = [("+", ""), ("+", ""), ("+", "+"), ("+", "-"), ("-", ""), ("", "")]  # of a step, settled


@st.composite
def journals(draw: st.DrawFn) -> list[Entry]:
    words, usual = [], draw(st.sampled_from(SHAPES))
    for step in STEPS[: draw(st.integers(0, len(STEPS)))]:
        shape = draw(st.just(usual) | st.just(usual) | st.sampled_from(SHAPES))
        for mark, end in zip(("", "~"), shape, strict=True):
            signs = draw(UNSETTLED) + end
            words.append(f"{mark}{step}{signs}" if signs else "")
    return [*histories.history(" ".join(words), ago=30.0), *draw(EXTRA)]


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    state = draw(st.sampled_from(list(JobState)))
    reason = draw(st.sampled_from(list(ParkedReason))) if state is JobState.PARKED else ""
    known: Any = draw(st.sampled_from([STEPS, STEPS[:2], STEPS[:1], None]))
    job = standing.Job(
        state=state,
        direction=draw(DIRECTIONS),
        steps=known,
        parked_reason=reason,
        is_leased=state is JobState.RUNNING and draw(st.booleans()),
    )
    return Drawn(job, draw(journals()))


def rules(of: Drawn) -> dict[Standing, bool]:
    """The table of the report, each rule by itself and by plain loops over the journal's operations."""
    job, forward, undo = of.job, of.ops(Direction.FORWARD), of.ops(Direction.BACKWARD)
    everything = [*forward.values(), *undo.values()]
    closers = {e.by for e in of.journal if isinstance(e, Resolution) and e.act.startswith("close")}
    doubt = any(op.doubtful() for op in everything) and not job.is_leased
    against = any(op.contradiction() for op in everything)
    told = job.parked_reason in ("unknown_outcome", "contradiction")
    happened = [step for step, op in forward.items() if op.is_confirmed()]
    undone = [step for step, op in undo.items() if op.is_confirmed()]
    same = sorted(happened) == sorted(undone)
    wanted = list(forward) if job.steps is None else list(job.steps)
    all_happened = bool(wanted) and all(step in happened for step in wanted)
    has_ended = job.state in ENDED
    given_up = job.state in (JobState.REFUSED, JobState.COMPENSATED)
    backward = job.direction is Direction.BACKWARD
    return {
        Standing.SETTLED_BY_HAND: job.state is JobState.CLOSED and len(closers) == 2,
        Standing.UNKNOWN_OUTCOME: doubt or against or told,
        Standing.COMPENSATION_PENDING: backward and not has_ended,
        Standing.PARKED_FORWARD: job.state is JobState.PARKED,
        Standing.CONFIRMED: job.state is JobState.CONFIRMED and all_happened and not undone,
        Standing.COMPLETED_RECOVERY: given_up and bool(happened) and same,
        Standing.CONFIRMED_FAILURE: given_up and not happened and same,
        Standing.IN_PROGRESS: not has_ended,
    }


@settings(max_examples=1_000, deadline=None)
@given(drawn())
def test_a_job_is_in_the_first_class_whose_rule_holds_and_an_unproven_end_is_unknown(
    of: Drawn,
) -> None:
    matching = [name for name, holds in rules(of).items() if holds]
    expected = matching[0] if matching else Standing.UNKNOWN_OUTCOME
    assert standing.classify(of.job, of.journal) is expected


@pytest.mark.parametrize("wanted", list(Standing))
def test_the_journals_drawn_here_come_to_every_class(wanted: Standing) -> None:
    found = find(drawn(), lambda of: standing.classify(of.job, of.journal) is wanted)
    assert standing.classify(found.job, found.journal) is wanted


@settings(max_examples=1_000, deadline=None)
@given(drawn())
def test_a_failed_compensation_is_never_recovered(of: Drawn) -> None:
    forward, undo = of.ops(Direction.FORWARD), of.ops(Direction.BACKWARD)
    failed = any(
        op.is_confirmed() and not (step in undo and undo[step].is_confirmed())
        for step, op in forward.items()
    )
    stands = standing.classify(of.job, of.journal)
    if failed:
        assert stands not in (Standing.COMPLETED_RECOVERY, Standing.CONFIRMED_FAILURE)
    if stands is Standing.COMPLETED_RECOVERY:
        assert all(op.contradiction() is None for op in (*forward.values(), *undo.values()))


@settings(max_examples=100, deadline=None)
@given(st.lists(drawn(), max_size=12))
def test_classes_add_up_to_all_jobs(many: list[Drawn]) -> None:
    report = standing.Report()
    stands = [report.add(of.job, of.journal) for of in many]
    assert report.total == len(many) == sum(line.jobs for line in report.lines.values())
    assert {name: line.jobs for name, line in report.lines.items()} == {
        name: stands.count(name) for name in Standing
    }
    recovered = report.lines[Standing.COMPLETED_RECOVERY].money
    assert all(amounts.held == amounts.at_risk == 0 for amounts in recovered.values())


@settings(max_examples=500, deadline=None)
@given(drawn())
def test_a_recovered_job_holds_no_money(of: Drawn) -> None:
    if standing.classify(of.job, of.journal) is Standing.COMPLETED_RECOVERY:
        found = standing.money(operations.fold(of.journal))
        assert found
        assert all(amounts.held == amounts.at_risk == 0 for amounts in found.values())

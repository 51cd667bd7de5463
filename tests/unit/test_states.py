"""The moves of a job, written out a second time by hand, so that a change of one list is seen."""

from pathlib import Path

import pytest

from ledger import states
from ledger.states import ENDED, JobState

MOVES = """
waiting:     queued parked
queued:      running waiting parked
running:     queued waiting parked confirmed refused compensated
parked:      waiting closed
confirmed:   parked
refused:     parked
compensated: parked
closed:      parked
"""
WRITTEN = {
    JobState(name): {JobState(to) for to in targets.split()}
    for name, _, targets in (line.partition(":") for line in MOVES.split("\n") if line)
}
DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.mark.parametrize("after", JobState)
@pytest.mark.parametrize("before", JobState)
def test_a_move_is_allowed_exactly_where_the_table_says_so(
    before: JobState, after: JobState
) -> None:
    assert (after in states.TRANSITIONS[before]) == (after in WRITTEN[before])


def test_every_state_has_a_way_on_and_a_way_in() -> None:
    reached = {to for targets in states.TRANSITIONS.values() for to in targets}
    assert set(states.TRANSITIONS) == set(JobState)
    assert reached == set(JobState)
    assert all(states.TRANSITIONS.values())


def test_an_ended_job_only_parks() -> None:
    assert {JobState.CONFIRMED, JobState.REFUSED, JobState.COMPENSATED, JobState.CLOSED} == ENDED
    assert {frozenset(states.TRANSITIONS[state]) for state in ENDED} == {
        frozenset({JobState.PARKED})
    }


def test_a_job_is_run_only_out_of_the_queue_and_ends_only_under_a_lease_or_by_people() -> None:
    into = {
        to: {b for b, targets in states.TRANSITIONS.items() if to in targets} for to in JobState
    }
    assert into[JobState.RUNNING] == {JobState.QUEUED}
    for ended in ENDED - {JobState.CLOSED}:
        assert into[ended] == {JobState.RUNNING}
    assert into[JobState.CLOSED] == {JobState.PARKED}


def test_edges_are_the_transitions_sorted() -> None:
    assert states.edges() == sorted(
        (b.value, a.value) for b, targets in WRITTEN.items() for a in targets
    )


def test_the_diagram_in_the_architecture_page_is_the_one_made_from_the_states() -> None:
    blocks = DOCUMENT.read_text(encoding="utf-8").split("```mermaid\n")[1:]
    drawn = [block.split("\n```")[0] for block in blocks]
    assert states.mermaid() in drawn

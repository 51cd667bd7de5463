"""`docs/journals.md` says what is so: its program prints what is shown, no line of a journal is left unexplained, and its
moves and operation ids are those of the code. The engine's own journals in it are held by `tests/bookings`.
"""

import re
from itertools import product

import pytest

from bookings import saga as trips
from ledger import states
from ledger.saga import Direction, NotUndoable
from tests import documents

PAGE = documents.Page("journals.md")
HEAD = 4  # lines that the program prints before its journal


def test_the_program_of_the_brief_prints_what_is_shown() -> None:
    assert documents.run(PAGE.fence("python main.py")) == (PAGE.fence("text output"), "")


def test_each_line_of_the_programs_journal_is_explained() -> None:
    header = (
        "line of the program's journal",
        "what it says",
        "what it cannot say",
        "in ours, below",
    )
    rows = PAGE.tables(*header)
    printed = PAGE.fence("text output").splitlines()[HEAD:]
    assert [documents.quoted(row[0]) for row in rows] == [[line] for line in printed]
    assert all(row[1] and row[3] for row in rows)


@pytest.mark.parametrize("word", ["A", "B"])
def test_each_line_of_our_journal_is_explained_once(word: str) -> None:
    header = (f"lines of {word}", "what happened", "what the extra lines are for")
    explained: list[int] = []
    for lines, what, _ in PAGE.tables(*header):
        first, _, last = lines.partition("-")
        explained += range(int(first), int(last or first) + 1)
        assert what, lines
    numbers = re.findall(r"^ ?(\d+) ", PAGE.fence(f"text journal-{word}"), re.MULTILINE)
    assert explained == [int(number) for number in numbers]


def test_the_moves_of_a_job_are_those_of_the_code() -> None:
    rows = PAGE.tables("from", "to", "who moves it")
    told = [
        move
        for before, after, who in rows
        for move in product(documents.quoted(before), documents.quoted(after))
        if who
    ]
    assert sorted(told) == states.edges()


def test_the_operation_ids_are_those_of_a_trip() -> None:
    rows = PAGE.tables("step", "forward operation", "its compensation")
    assert [documents.quoted(row[0]) for row in rows] == [[step.name] for step in trips.trip.steps]
    for step, row in zip(trips.trip.steps, rows, strict=True):
        undo = [] if isinstance(step.undo, NotUndoable) else [f"A:{step.name}:{Direction.BACKWARD}"]
        assert documents.quoted(row[1]) == [f"A:{step.name}:{Direction.FORWARD}"]
        assert documents.quoted(row[2]) == undo

"""`docs/why-once.md` says what is so: its program prints what is shown, quotes itself, and every proof it names exists."""

import pytest

from tests import documents
from tests.house import test_guarantees_doc as guarantees

PAGE = documents.Page("why-once.md")
HEADERS = (
    (
        "kind of effect",
        "why a second delivery adds none",
        "what is left, and what happens then",
        "proved by",
    ),
    ("what comes twice", "what meets it", "proved by"),
)


def test_the_program_prints_what_is_shown() -> None:
    assert documents.run(PAGE.fence("python main.py")) == (PAGE.fence("text output"), "")


def test_the_lines_that_are_explained_are_lines_of_the_program() -> None:
    rows = list(PAGE.tables("line of the program", "what it prevents"))
    assert len(rows) == 4
    for line, what in rows:
        (quoted,) = documents.quoted(line)
        assert quoted in PAGE.fence("python main.py")
        assert what


@pytest.mark.parametrize("header", HEADERS)
def test_every_kind_is_proved_by_tests_that_are_there(header: tuple[str, ...]) -> None:
    rows = list(PAGE.tables(*header))
    assert len(rows) > 5
    for row in rows:
        proofs = documents.quoted(row[-1])
        assert proofs, row[0]
        assert [proof for proof in proofs if not guarantees.is_there(proof)] == []

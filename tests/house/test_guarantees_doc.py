"""`docs/guarantees.md` promises nothing without a guard and a proof, and names none that is not there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import documents, psql

PAGE = documents.Page("guarantees.md")
HEADER = ("promise", "kept by", "proved by")
IN_DATABASE = """
SELECT conname FROM pg_constraint WHERE convalidated UNION SELECT tgname FROM pg_trigger WHERE tgenabled <> 'D'
UNION SELECT indexname FROM pg_indexes WHERE schemaname = 'public'
UNION SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION SELECT policyname FROM pg_policies WHERE schemaname = 'public'
"""
# A file of ours alone, or with a name in it.
CODE = re.compile(r"[a-z_/]+\.py(?::\w+)?\Z")
TEST = re.compile(r"tests/[\w/]+\.py::test_\w+\Z")


def names(path: Path) -> Iterator[str]:
    """Whatever a file defines: classes, functions, methods and the names of its own level."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets += [node.target] if isinstance(node, ast.AnnAssign) else []
        yield from (target.id for target in targets if isinstance(target, ast.Name))


@cache
def defined(file: str) -> frozenset[str]:
    path = documents.ROOT / file
    return frozenset(names(path)) if path.is_file() else frozenset()


def is_there(reference: str) -> bool:
    """Whether this code, `file`, `file:name` or `file::name`, exists."""
    file, _, name = reference.partition(":")
    return name.lstrip(":") in defined(file) if name else (documents.ROOT / file).is_file()


def cells(number: int) -> list[str]:
    return [name for row in PAGE.tables(*HEADER) for name in documents.quoted(row[number])]


def test_no_promise_is_without_a_guard_and_a_proof() -> None:
    for promise, guard, proof in PAGE.tables(*HEADER):
        assert promise
        assert documents.quoted(guard), promise
        assert documents.quoted(proof), promise


def test_no_promise_is_made_twice() -> None:
    promises = [row[0] for row in PAGE.tables(*HEADER)]
    assert len(set(promises)) == len(promises)


def test_every_proof_is_there() -> None:
    proofs = cells(2)
    assert [name for name in proofs if not TEST.match(name)] == []
    assert [name for name in proofs if not is_there(name)] == []


def test_every_guard_in_code_is_there() -> None:
    guards = [name for name in cells(1) if CODE.match(name)]
    assert [name for name in guards if not is_there(name)] == []


@pytest.mark.usefixtures("database")
def test_every_guard_in_the_database_is_there() -> None:
    with psql.connected() as session:
        installed = {row[0] for row in session.execute(IN_DATABASE)}
    guards = [name for name in cells(1) if not CODE.match(name)]
    assert guards
    assert [name for name in guards if name not in installed] == []


def test_the_page_says_what_is_not_guaranteed_and_why() -> None:
    rows = PAGE.tables("not guaranteed", "why", "what is seen instead")
    assert all(all(row) for row in rows)


@pytest.mark.parametrize(
    "reference",
    [
        "ledger/planner.py:nowhere",
        "ledger/nowhere.py",
        "ledger/nowhere.py:decide",
        "tests/house/test_sizes.py::test_nothing",
    ],
)
def test_what_is_not_there_is_not_found(reference: str) -> None:
    """Control: the lookups above can fail."""
    assert not is_there(reference)
    assert all(map(is_there, ("ledger/doubt.py:decide", "ledger/leases.py:RENEW", "manage.py")))

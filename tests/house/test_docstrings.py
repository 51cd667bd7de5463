"""Every module of the engine says what it owns, and the reading order is the same wherever it is written."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A list item that begins with a module's name: "1. `ledger/submission.py` ...", "- submission: ...", "* `submission`".
ITEM = re.compile(
    r"^\s*(?:\d+\.|[-*])\s+`?(?:ledger[./])?([a-z_]+)(?:\.py)?`?(?=\s|:|,|$)", re.MULTILINE
)
NOT_LISTED = {"__init__", "apps"}


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def ledger_modules() -> set[str]:
    return {path.stem for path in (ROOT / "ledger").glob("*.py")} - NOT_LISTED


def listed(text: str) -> list[str]:
    """The ledger's modules in the order in which a list of the text names them first."""
    known = ledger_modules()
    return list(dict.fromkeys(name for name in ITEM.findall(text) if name in known))


@pytest.mark.parametrize("app", ["ledger", "recovery"])
def test_every_module_says_what_it_owns(app: str) -> None:
    modules = [
        path
        for path in (ROOT / app).rglob("*.py")
        if "migrations" not in path.parts
        and (path.name != "__init__.py" or path.parent.name == app)
    ]
    assert modules
    silent = [str(path.relative_to(ROOT)) for path in modules if len(docstring(path).split()) < 5]
    assert silent == []


def test_the_reading_order_names_every_module() -> None:
    assert set(listed(docstring(ROOT / "ledger" / "__init__.py"))) == ledger_modules()


def test_the_reading_order_of_the_docs_is_that_of_the_code() -> None:
    in_code = listed(docstring(ROOT / "ledger" / "__init__.py"))
    assert listed((ROOT / "docs" / "architecture.md").read_text()) == in_code


def test_the_list_reader_reads_what_it_should() -> None:
    """Control: the two tests above compare something."""
    text = "1. `ledger/models.py` rows\n2. states: words\n- `planner`\n* saga.py, data\nmodels stay\n3. nowhere\n"
    assert listed(text) == ["models", "states", "planner", "saga"]

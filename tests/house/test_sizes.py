"""Files and functions stay short enough to be read, and names say what a module owns."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APPS = ("config", "ledger", "bookings", "recovery")
FORBIDDEN_NAMES = {"utils", "helpers", "common", "core", "base", "manager"}


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def too_long(paths: list[Path], limit: int) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {lines(path)} > {limit}"
        for path in paths
        if lines(path) > limit
    ]


def test_source_files_have_at_most_400_lines() -> None:
    found = [path for path in sources(*APPS) if "migrations" not in path.parts]
    assert found
    assert too_long(found, 400) == []


def test_test_files_have_at_most_500_lines() -> None:
    assert too_long(list(sources("tests")), 500) == []


def test_functions_have_at_most_70_lines() -> None:
    long = []
    for path in sources(*APPS, "tests"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > 70:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {length}")
    assert long == []


@pytest.mark.parametrize(
    ("pattern", "limit"), [("README.md", 200), ("docs/decisions/[0-9]*.md", 60)]
)
def test_prose_stays_short(pattern: str, limit: int) -> None:
    found = list(ROOT.glob(pattern))
    assert found, f"no {pattern}"
    assert too_long(found, limit) == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    named = [path for path in sources(*APPS, "tests") if path.stem in FORBIDDEN_NAMES]
    packages = [
        path for app in APPS for path in (ROOT / app).rglob("*/") if path.name in FORBIDDEN_NAMES
    ]
    assert named + packages == []


def test_decisions_are_numbered_without_a_gap_and_say_their_parts() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert [path.name[:4] for path in decisions] == [f"{n + 1:04}" for n in range(len(decisions))]
    for path in decisions:
        text = path.read_text()
        for part in ("## Context", "## Decision", "## Consequence", "Tags:"):
            assert part in text, f"{path.name} has no {part!r}"

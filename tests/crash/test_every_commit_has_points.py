"""A commit or a provider call without a crash point before and after it fails here, by reading the code.

The rule: a function *commits* if it opens `transaction.atomic(durable=True)`, or passes `sql.fetch` (outside of any
`atomic` block) a statement of this repository that writes; it *calls out* if it calls `outcome_of`. Such a function must
reach a point before it and a point after it, or be called by functions of ours only that do, or stand in `ELSEWHERE` with
the points between which it runs or the reason why none is needed. Statements are found by name: constants of the same
module, and text. A planted function shows that the rule can fail.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import override

import pytest

ROOT = Path(__file__).resolve().parents[2]
FETCH = ("sql.fetch", "fetch")
WRITES = ("INSERT INTO", "UPDATE ", "DELETE FROM")
NOT_OURS_TO_KILL = ("migrations", "management", "matrix", "simulation", "sandbox", "admin.py")

# function: the points between which it runs, or the reason why it needs none.
ELSEWHERE = {
    "ledger.sightings.record": "evidence, changes no state: between call.after or probe.after and settle.before",
    "ledger.leases._end": "around reclaim; for the watcher, a process of its own, reclaim does what it leaves undone",
    "recovery.sweeps._reclaim": "its commit follows reclaim.after; what is committed and not rung, ring.after_select rings",
    "ledger.versions.report": "no promise rests on it; one that is lost comes again with the next run",
    "bookings.hotel_books.load": "an operator's command, repeated as a whole",
    "ledger.permits.limit": "an operator's command, repeated as a whole",
    "ledger.shares.hasten": "of that command; whoever is not woken looks again by itself",
    "ledger.events.announce": "in the transaction of whoever makes the first endpoint",
    "bookings.webhooks.deliveries.replay": "in the transaction of the staff log; a person who was not told asks again",
    "bookings.webhooks.endpoints.create": "a client that was not told finds that its URL is taken, and makes a new secret",
    "bookings.webhooks.endpoints.rotate": "a client that was not told rotates again; the secret it knows is valid for a day",
}


@dataclass
class Function:
    """What one function does that matters here. `calls`: names called, and whether points were reached around them."""

    name: str
    commits_at: list[int] = field(default_factory=list)
    reaches_at: list[int] = field(default_factory=list)
    calls: list[tuple[str, int]] = field(default_factory=list)

    def surrounds(self, line: int) -> bool:
        return any(r < line for r in self.reaches_at) and any(r > line for r in self.reaches_at)


class Reader(ast.NodeVisitor):
    """Collects the functions of one module."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.module, self.found = module, []  # type: str, list[Function]
        self.statements = {
            name.id
            for node in tree.body
            if isinstance(node, ast.Assign) and _writes(node.value)
            for name in node.targets
            if isinstance(name, ast.Name)
        }
        self._inside: list[Function] = []
        self._atomic = 0
        self.visit(tree)

    @override
    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if self._inside:  # a closure runs where it is called: as a part of its function
            self.generic_visit(node)
            return
        self._inside.append(Function(f"{self.module}.{node.name}"))
        self.generic_visit(node)
        self.found.append(self._inside.pop())

    @override
    def visit_With(self, node: ast.With) -> None:
        atomic = [item for item in node.items if _name(item.context_expr).endswith("atomic")]
        durable = [
            i for i in atomic if isinstance(i.context_expr, ast.Call) and i.context_expr.keywords
        ]
        if self._inside and any(_is_durable(i.context_expr) for i in durable):
            self._inside[-1].commits_at.append(node.lineno)
        self._atomic += bool(atomic)
        self.generic_visit(node)
        self._atomic -= bool(atomic)

    @override
    def visit_Call(self, node: ast.Call) -> None:
        if self._inside:
            self._call(self._inside[-1], node)
        self.generic_visit(node)

    def _call(self, function: Function, node: ast.Call) -> None:
        name = _name(node)
        function.calls.append((name, node.lineno))
        if name.endswith("crashpoints.reach"):
            function.reaches_at.append(node.lineno)
        elif name.endswith("outcome_of") or self._commits(name, node):
            function.commits_at.append(node.lineno)

    def _commits(self, name: str, node: ast.Call) -> bool:
        return name in FETCH and not self._atomic and self._is_writing(node.args[0])

    def _is_writing(self, statement: ast.expr) -> bool:
        names = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
        return bool(names & self.statements) or _writes(statement)


def _name(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def _is_durable(node: ast.expr) -> bool:
    assert isinstance(node, ast.Call)
    return any(k.arg == "durable" for k in node.keywords)


def _writes(node: ast.expr) -> bool:
    text = "".join(
        n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    )
    return any(word in text for word in WRITES)


def sources() -> Iterator[tuple[str, str]]:
    for app in ("ledger", "bookings", "recovery"):
        for path in sorted((ROOT / app).rglob("*.py")):
            if not set(path.relative_to(ROOT).parts) & set(NOT_OURS_TO_KILL):
                yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path.read_text()


def bare(modules: Iterator[tuple[str, str]]) -> set[str]:
    """Functions with a commit or a call that no points surround, and that somebody calls without points around it."""
    functions: list[Function] = []
    for module, text in modules:
        found = Reader(module, ast.parse(text)).found
        reaching = {_short(f.name) for f in found if f.reaches_at and not f.commits_at}
        for f in found:  # a function that only reaches a point is one, wherever it is called
            f.reaches_at += [line for called, line in f.calls if called in reaching]
        functions += found
    suspects = {f.name for f in functions if any(not f.surrounds(line) for line in f.commits_at)}
    return {name for name in suspects if not _is_surrounded(name, functions, depth=4)}


def _is_surrounded(name: str, functions: list[Function], depth: int) -> bool:
    """Whether every caller in the project reaches a point on both sides, itself or by its own callers."""
    calls = [(f, line) for f in functions for c, line in f.calls if _calls(f, c, name)]
    return (
        bool(calls)
        and depth > 0
        and all(f.surrounds(n) or _is_surrounded(f.name, functions, depth - 1) for f, n in calls)
    )


def _calls(caller: Function, called: str, name: str) -> bool:
    """By the rule that modules are imported and not their names: `module.function`, or the bare name at home."""
    if caller.name == name:
        return False
    module, _, short = name.rpartition(".")
    at_home = caller.name.startswith(f"{module}.") and called in (short, f"self.{short}")
    return at_home or called == f"{_short(module)}.{short}"


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def test_every_commit_and_every_call_has_points_around_it() -> None:
    assert bare(sources()) == set(ELSEWHERE)


@pytest.mark.parametrize(
    "body",
    [
        "with transaction.atomic(durable=True):\n        pass\n    crashpoints.reach('x.after')",
        "crashpoints.reach('x.before')\n    sql.fetch('UPDATE ledger_job SET a = 1')",
        "return outcome_of(handler, call)",
    ],
)
def test_a_planted_commit_without_points_is_found(body: str) -> None:
    assert bare(iter([("planted", f"def leave():\n    {body}\n")])) == {"planted.leave"}


def test_one_with_points_is_not() -> None:
    body = "crashpoints.reach('x.before')\n    sql.fetch('UPDATE t SET a = 1')\n    crashpoints.reach('x.after')"
    assert bare(iter([("planted", f"def leave():\n    {body}\n")])) == set()

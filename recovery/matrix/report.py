"""The cases of a matrix as a table, a line for each point: what the run file and the screen show.

Kept here: a run passes only if no case failed and every point that the code declares was reached by some case.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ledger import crashpoints
from recovery.matrix.survey import Result

FAILURES_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Row:
    """One case, in process or of real processes (`who`: a child of a worker, a whole worker, the API)."""

    who: str
    of: str
    point: str
    kind: str
    where: str
    ended: str
    verdict: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    rows: Sequence[Row]
    reached: Collection[str]

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows if row.why]

    @property
    def never_reached(self) -> list[str]:
        return sorted(crashpoints.POINTS.keys() - self.reached)

    @property
    def has_passed(self) -> bool:
        return bool(self.rows) and not self.failed and not self.never_reached

    def as_json(self) -> dict[str, Any]:
        return {
            "passed": self.has_passed,
            "cases": len(self.rows),
            "failed": [asdict(row) for row in self.failed],
            "never_reached": self.never_reached,
            "points": self.by_point(),
        }

    def by_point(self) -> dict[str, Mapping[str, int]]:
        """Per point: its cases by kind, and by how they ended."""
        found: dict[str, Counter[str]] = {point: Counter() for point in crashpoints.POINTS}
        for row in self.rows:
            found[row.point].update(["cases", row.kind, row.verdict])
        return {point: dict(counts) for point, counts in found.items()}


def row_of(result: Result) -> Row:
    verdict = "failed" if result.why else "undisturbed" if result.is_undisturbed else "declared"
    fault, where = result.fault, f"{result.script}: {result.situation} (reach {result.fault.nth})"
    return Row(
        "in process", result.saga, fault.point, fault.kind, where, result.ended, verdict, result.why
    )


def table(report: Report) -> Iterator[str]:
    """Markdown."""
    kinds = sorted({row.kind for row in report.rows})
    yield "| point | cases | " + " | ".join(kinds) + " | as undisturbed | as declared | failed |"
    yield "| --- |" + " ---: |" * (len(kinds) + 4)
    for point, counts in report.by_point().items():
        columns = ("cases", *kinds, "undisturbed", "declared", "failed")
        yield f"| `{point}` | " + " | ".join(str(counts.get(c, 0)) for c in columns) + " |"


def failures(report: Report) -> Iterator[str]:
    if not report.failed:
        yield "No case failed."
    for row in report.failed[:FAILURES_SHOWN]:
        yield f"- {row.who}, {row.of}, {row.kind} at `{row.point}`, {row.where}: {row.why}"
    if (more := len(report.failed) - FAILURES_SHOWN) > 0:
        yield f"- and {more} more"
    yield ""
    missing = ", ".join(f"`{point}`" for point in report.never_reached)
    yield f"Never reached: {missing}." if missing else "Every declared point was reached."

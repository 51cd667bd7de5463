"""Renders the report that the ledger computes: as JSON for a pipeline, as text for a person.

The promise: all eight classes are there, the empty ones too, and they add up to all jobs. Amounts stay integers in minor
units: how many digits a currency has is not this module's to know, so the text says `minor` and moves no point.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ledger.standing import Amounts, Line, Report, Standing

HEADINGS = (
    "class",
    "jobs",
    "oldest",
    "currency",
    "captured",
    "refunded",
    "held",
    "at risk",
    "cost",
)
ROW = "{:<21}{:>8}{:>9}  {:<9}{:>14}{:>14}{:>14}{:>14}{:>12}"
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def as_json(report: Report) -> dict[str, Any]:
    """`{"total", "classes": {name: {"jobs", "money": {currency: {...}}, ...}}}`, in the order in which classes are tried."""
    classes = {str(standing): _json(standing, line) for standing, line in report.lines.items()}
    return {"total": report.total, "classes": classes}


def _json(standing: Standing, line: Line) -> dict[str, Any]:
    found: dict[str, Any] = {
        "jobs": line.jobs,
        "money": {currency: _amounts(line.money[currency]) for currency in sorted(line.money)},
        "cost": _sorted(line.cost),
        "receipts": _sorted(line.receipts),
        "oldest_seconds": line.oldest_seconds,
    }
    if standing is Standing.CONFIRMED:
        found["recovered_forward"] = line.recovered_forward
    if line.parked or standing is Standing.COMPENSATION_PENDING:
        found["parked"] = _sorted(line.parked)
    return found


def _amounts(amounts: Amounts) -> dict[str, int]:
    return {
        "captured": amounts.captured,
        "refunded": amounts.refunded,
        "held": amounts.held,
        "at_risk": amounts.at_risk,
    }


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: counts[name] for name in sorted(counts)}


def as_text(report: Report) -> str:
    """A table, one row per class and currency, and under it what the class is made of."""
    lines = [ROW.format(*HEADINGS)]
    for standing, line in report.lines.items():
        lines += _rows(standing, line)
        lines += _notes(standing, line)
    lines.append(f"{report.total} jobs; amounts in minor units")
    return "\n".join(text.rstrip() for text in lines)


def _rows(standing: Standing, line: Line) -> Iterator[str]:
    head = [str(standing).replace("_", " "), line.jobs, _age(line.oldest_seconds)]
    currencies = sorted({*line.money, *line.cost})
    if not currencies:
        yield ROW.format(*head, *[""] * 6)
    for currency in currencies:
        amounts = _amounts(line.money.get(currency, Amounts()))
        yield ROW.format(*head, currency, *amounts.values(), line.cost[currency])
        head = ["", "", ""]


def _notes(standing: Standing, line: Line) -> Iterator[str]:
    if line.receipts:
        yield f"    receipts: {_counted(line.receipts)}"
    if line.parked:
        yield f"    parked: {_counted(line.parked)}"
    if standing is Standing.CONFIRMED and line.jobs:
        yield f"    of which recovered forward: {line.recovered_forward}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in _sorted(counts).items())


def _age(seconds: int | None) -> str:
    if seconds is None:
        return ""
    size, unit = next(((s, u) for s, u in UNITS if seconds >= s), UNITS[-1])
    return f"{seconds // size} {unit}"

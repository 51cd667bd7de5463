"""The report of the drills: JSON for machines, Markdown with a plot for people. Pure.

Kept here: a drill passes without violations and without a counter at zero, and nothing else is rounded into a pass. The plot
is a drawing of a few lines: each dot a job, on a logarithmic axis of seconds.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.drills.run import MEANINGS, Recovery

WIDTH, LEFT, ROW, TOP = 900, 190, 26, 34
LEAST_SECONDS, MOST_SECONDS = 0.01, 100.0
DOTS_MAX = 300
SHOWN = 20


@dataclass(slots=True)
class Result:
    """One drill that was run. `zero` are the counters that had to be seen and were not."""

    name: str
    done: str
    jobs: int
    seconds: float
    recovers: Recovery
    recovery: list[float] = field(default_factory=list)
    by_fault: dict[str, list[float]] = field(default_factory=dict)
    observed: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    zero: list[str] = field(default_factory=list)

    @property
    def has_passed(self) -> bool:
        return not (self.failures or self.zero)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "passed": self.has_passed,
            "jobs": self.jobs,
            "violations": len(self.failures),
            "failures": self.failures[:SHOWN],
            "never_seen": self.zero,
            "recovery_s": percentiles(self.recovery),
            "recovery_of": MEANINGS[self.recovers],
            "recovery_n": len(self.recovery),
            "recovery_by_fault_s": {n: percentiles(s) for n, s in self.by_fault.items() if s},
            "outcomes": self.outcomes,
            "observed": self.observed,
            "seconds": round(self.seconds, 1),
        }


@dataclass(slots=True)
class Report:
    """All drills of one command. `left_out` could not be run here, and says why; `run` is about the run as a whole."""

    results: list[Result] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    sums: dict[str, Any] = field(default_factory=dict)  # of a soak

    @property
    def has_passed(self) -> bool:
        return bool(self.results) and not self.failures and all(r.has_passed for r in self.results)

    def as_json(self) -> dict[str, Any]:
        return {
            "passed": self.has_passed,
            "drills": [result.as_json() for result in self.results],
            "left_out": self.left_out,
            "failures": self.failures,
            "run": self.run,
            **self.sums,
        }


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """By nearest rank: each is a value that was measured. None where nothing was."""
    ordered = sorted(seconds)

    def rank(part: float) -> float | None:
        return round(ordered[math.ceil(part * len(ordered)) - 1], 3) if ordered else None

    return {"p50": rank(0.5), "p99": rank(0.99), "max": rank(1.0)}


def summary(found: Report) -> Iterator[str]:
    """For a terminal."""
    yield from table(found.results)
    for one in found.results:
        yield from (f"FAILED {one.name}: {text}" for text in one.failures[:SHOWN])
        yield from (f"FAILED {one.name}: never seen: {name}" for name in one.zero)
    yield from (f"left out: {name}, {why}" for name, why in found.left_out.items())
    yield from (f"FAILED {text}" for text in found.failures)
    yield "passed" if found.has_passed else "FAILED"


def markdown(found: Report, commands: Sequence[str], name: str = "drills") -> str:
    """The run file; its plot lies beside it under the same name."""
    return "\n".join(_lines(found, commands, name)) + "\n"


def _lines(found: Report, commands: Sequence[str], name: str) -> Iterator[str]:
    yield from head("Drills: one run", "manage.py drill", found, commands, name)
    yield ""
    yield from table(found.results)
    for result in found.results:
        yield from section(result)


def head(
    title: str, command: str, found: Report, commands: Sequence[str], name: str
) -> Iterator[str]:
    yield f"# {title}"
    yield ""
    yield f"Written by `{command}`; how to read it stands in [drills.md](../drills.md)."
    yield ""
    yield from (f"    {command}" for command in commands)
    yield ""
    yield from (f"- {what}: {value}" for what, value in found.run.items())
    yield f"- result: {'passed' if found.has_passed else 'FAILED'}"
    yield from (f"- left out: {drill}, {why}" for drill, why in found.left_out.items())
    yield from (f"- FAILED: {failure}" for failure in found.failures)
    yield ""
    yield f"![recovery times]({name}.svg)"


def table(results: Iterable[Result]) -> Iterator[str]:
    yield "| drill | jobs | violations | never seen | recovery p50 | p99 | max, s | of |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for one in results:
        p50, p99, most = (_number(value) for value in percentiles(one.recovery).values())
        yield (
            f"| {one.name} | {one.jobs} | {len(one.failures)} | {len(one.zero)} | {p50} | {p99} | {most} |"
            f" {len(one.recovery)} |"
        )


def section(one: Result) -> Iterator[str]:
    yield ""
    yield f"## {one.name}: {'passed' if one.has_passed else 'FAILED'}"
    yield ""
    yield one.done
    yield ""
    yield f"Recovery is measured {MEANINGS[one.recovers]}."
    for name, seconds in one.by_fault.items():
        if seconds:
            p50, p99, most = (_number(value) for value in percentiles(seconds).values())
            yield f'After "{name}": {len(seconds)} jobs, p50 {p50} s, p99 {p99} s, max {most} s.'
    yield ""
    yield "Done:"
    yield ""
    yield from (f"- {text}" for text in _shortened(one.notes))
    yield ""
    yield f"Jobs ended: {_pairs(one.outcomes)}. Observed: {_pairs(one.observed)}."
    yield ""
    yield from _failure_cases(one)


def _failure_cases(one: Result) -> Iterator[str]:
    if one.has_passed:
        yield "Failure cases: none."
        return
    yield "Failure cases:"
    yield ""
    yield from (f"- {failure}" for failure in one.failures[:SHOWN])
    if len(one.failures) > SHOWN:
        yield f"- and {len(one.failures) - SHOWN} more"
    yield from (f"- never seen: {name}" for name in one.zero)


def _shortened(notes: Sequence[str]) -> Iterator[str]:
    """The same thing done several times is told once."""
    times: dict[str, int] = {}
    for note in notes or ["nothing but what the sandbox does"]:
        times[note] = times.get(note, 0) + 1
    yield from (text if count == 1 else f"{text} ({count} times)" for text, count in times.items())


def _pairs(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items()) or "nothing"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def svg(results: Sequence[Result]) -> str:
    """Recovery times, a row for each drill: a dot for each job, a line at the median."""
    height = TOP + ROW * len(results) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="16">seconds to recover, one dot a job, a bar at the median</text>',
    ]
    for tick in (0.01, 0.1, 1.0, 10.0, 100.0):
        x = _across(tick)
        parts.append(f'<path d="M{x:.0f} {TOP - 8}V{height - 24}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.0f}" y="{height - 8}" text-anchor="middle">{tick:g}</text>')
    for number, one in enumerate(results):
        parts += _row(one, TOP + ROW * number + 8)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row(one: Result, y: int) -> Iterator[str]:
    yield f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{one.name}</text>'
    every = max(1, len(one.recovery) // DOTS_MAX)
    yield '<g fill="#2a6fdb" fill-opacity="0.35">'
    for seconds in sorted(one.recovery)[::every]:
        yield f'<circle cx="{_across(seconds):.1f}" cy="{y}" r="3"/>'
    yield "</g>"
    median = percentiles(one.recovery)["p50"]
    if median is not None:
        x = _across(median)
        yield f'<path d="M{x:.1f} {y - 8}V{y + 8}" stroke="#c2410c" stroke-width="2"/>'


def _across(seconds: float) -> float:
    bounded = min(max(seconds, LEAST_SECONDS), MOST_SECONDS)
    part = math.log(bounded / LEAST_SECONDS) / math.log(MOST_SECONDS / LEAST_SECONDS)
    return LEFT + part * (WIDTH - LEFT - 30)

"""Many histories: ranges of seeds, what they counted, and how runs are put together.

A class of cases that was declared and never met fails a run of COVERAGE_FROM histories or more: a generator that lost a
fault finds nothing and looks fine.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from structlog.testing import capture_logs

from ledger import clock, engine, tickets
from recovery.simulation import database, faults, quiet
from recovery.simulation.chronicle import Violation
from recovery.simulation.histories import History

COVERAGE_FROM = 200
STEPS = (120, 220)
# Must have been seen at least once, or what they would show was not tried.
SOMETIMES = (
    *(
        "stale_write_refused",
        "zombie_woke",
        "ticket_doubled",
        "duplicate_absorbed",
        "found_by_probe",
    ),
    *(
        "not_found_by_probe",
        "parked:unknown_outcome",
        "parked:compensation_failed",
        "reply_lost_and_repeated",
        "sweep_rang",
    ),
    *("state:compensated", "late_call_neutralised", "throttle_obeyed", "drained"),
    *("job_of_both_builds", "cancelled", "deadline_passed", "late_answer", "key_misuse_refused"),
)
EVENTS = {
    "write.refused": "stale_write_refused",
    "write.repeated": "reply_lost_and_repeated",
    "call.late": "late_answer",
    "local.repeated": "local_repeated",
    "plan.failed": "plan_failed",
}


@dataclass(slots=True)
class Told:
    """What became of one history."""

    seed: int
    digest: str
    violations: list[Violation]
    counters: Counter[str]
    lines: list[str]


@dataclass(slots=True)
class Total:
    """A run, or several of them put together: which seeds, what was counted, what failed."""

    ranges: list[list[int]] = field(default_factory=list)  # [first, last], both included
    counters: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    seconds: float = 0.0
    commit: str = ""
    machines: list[str] = field(default_factory=list)

    @property
    def histories(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def has(self, seed: int) -> bool:
        return any(first <= seed <= last for first, last in self.ranges)

    def take(self, told: Told) -> None:
        self.ranges = _joined([*self.ranges, [told.seed, told.seed]])
        self.counters += told.counters
        self.violations += told.violations

    def merge(self, other: "Total") -> None:
        """Put two runs together. ValueError where they share a seed, which would be counted twice, or are of two commits."""
        if self.commit != other.commit:
            raise ValueError(f"the runs are of two commits: {self.commit} and {other.commit}")
        joined = _joined(self.ranges + other.ranges)
        if sum(b - a + 1 for a, b in joined) != self.histories + other.histories:
            raise ValueError(f"the runs share seeds: {self.ranges} and {other.ranges}")
        self.ranges, self.seconds = joined, self.seconds + other.seconds
        self.counters += other.counters
        self.violations += other.violations
        self.machines = sorted({*self.machines, *other.machines})

    def missing(self) -> list[str]:
        """Declared classes without a case; nothing for a short run."""
        if self.histories < COVERAGE_FROM:
            return []
        return [name for name in declared() if not self.counters[name]]

    def as_json(self) -> dict[str, Any]:
        return {
            "commit": self.commit,
            "machines": self.machines,
            "histories": self.histories,
            "ranges": self.ranges,
            "violations": len(self.violations),
            "violated": [[v.seed, v.invariant, v.what] for v in self.violations],
            "counters": dict(sorted(self.counters.items())),
            "missing": self.missing(),
            "seconds": round(self.seconds, 1),
        }


def declared() -> list[str]:
    """Every class of cases: shapes, kinds of faults, crash points, and what must sometimes be seen."""
    sagas = ("sim.trip.1", "sim.trip.2", "sim.tour.1", "sim.parcel.1", "sim.errand.1")
    shapes = [f"shape:{name}" for name in sagas]
    kinds = [f"fault:{kind}" for kind in faults.KINDS]
    return [*shapes, *kinds, *(f"point:{point}" for point in faults.points()), *SOMETIMES]


def play(seeds: Iterator[int], total: Total, told: Callable[[Told], None]) -> None:
    """Play these histories, but for those that the run has already; `told` hears of each."""
    for seed in seeds:
        if total.has(seed):
            continue
        began = time.monotonic()
        one = run(seed)
        total.take(one)
        total.seconds += time.monotonic() - began
        told(one)


def run(seed: int, at_rest: Callable[[History], None] = lambda _history: None) -> Told:
    """One history from an empty database to its judgement; `at_rest` may look at what it left, before retention."""
    database.empty(seed)
    history = History(seed)
    with _staged(history) as events:
        for _ in range(history.draw.randint(*STEPS)):
            if history.chronicle.violations:
                break
            history.step()
        if not history.chronicle.violations:
            quiet.come_to_rest(history)
            quiet.judge(history)
            at_rest(history)
            quiet.retain(history)
    counters = history.chronicle.counters
    for event in events:
        if event["event"] in EVENTS:
            counters[EVENTS[event["event"]]] += 1
    chronicle = history.chronicle
    return Told(seed, chronicle.digest(), chronicle.violations, counters, chronicle.lines)


@contextmanager
def _staged(history: History) -> Iterator[list[Any]]:
    """Everything that the engine asks of its surroundings is the history's, within the block."""
    before = engine.leaving
    with ExitStack() as stage:
        events = stage.enter_context(capture_logs())
        logging.disable(logging.CRITICAL)  # Django tells of every lost reply
        stage.callback(logging.disable, logging.NOTSET)
        stage.enter_context(clock.replaced(history.clock))
        stage.enter_context(tickets.heard_by(history.ring))
        stage.enter_context(history.line.attached())
        stage.enter_context(faults.watched(history.faults.reached))
        engine.leaving = history.is_leaving
        history.begin()
        try:
            yield events
        finally:
            engine.leaving = before


def _joined(ranges: list[list[int]]) -> list[list[int]]:
    """Ranges in order, those that touch or overlap made one."""
    found: list[list[int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1][1] = max(found[-1][1], last)
        else:
            found.append([first, last])
    return found

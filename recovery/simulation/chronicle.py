"""The chronicle of one history: every event in order, their digest, what was counted, and what must not have been.

Nothing random of the system's own (write ids, claim tokens, serial numbers) may enter it, or two runs of a seed would
differ.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass

from recovery.simulation.virtual import VirtualClock


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold, and where."""

    seed: int
    invariant: str
    what: str


class Chronicle:
    def __init__(self, seed: int, clock: VirtualClock) -> None:
        self.seed = seed
        self.lines: list[str] = []
        self.counters: Counter[str] = Counter()
        self.violations: list[Violation] = []
        self._clock = clock

    def note(self, *words: object) -> None:
        self.lines.append(" ".join([f"{self._clock.micros:>13}", *map(str, words)]))

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] += by

    def violate(self, invariant: str, what: str) -> None:
        if all((v.invariant, v.what) != (invariant, what) for v in self.violations):
            self.note("VIOLATION", invariant, what)
            self.violations.append(Violation(self.seed, invariant, what))

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

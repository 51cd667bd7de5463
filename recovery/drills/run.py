"""One drill at work: its load, its faults, what was seen. And what a drill is, as data."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from recovery.drills import judge
from recovery.drills.events import Events
from recovery.drills.judge import Witnesses
from recovery.drills.load import Load
from recovery.drills.place import Place
from recovery.drills.watch import Watch

LATENCY_SECONDS, JITTER = 0.2, 0.5
DECLINED = 0.1  # of captures, and of tickets
REACH_SECONDS = 30.0
MORE_MIN, MORE = 8, 20  # bookings of one burst: at least, and a part of the load
RUNNING = """
SELECT count(*) FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s) AND j.owner IS NOT NULL
"""
Recovery = Literal["claim", "end", "doubt"]
MEANINGS: Mapping[Recovery, str] = {
    "claim": "from the fault to the next owner's claim, of each job that lost its lease",
    "end": "from the fault to the end of each job that was open then",
    "doubt": "from the first receipt that decides nothing to the end of its job",
}


class LateError(Exception):
    """Something that the drill waits for did not come about; says what."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what}: not within {seconds:g} s")


class StoppedError(Exception):
    """The drill was told to stop."""


@dataclass(frozen=True, slots=True)
class Begun:
    """How long the provider's books were when it began: what is further back is no concern of it."""

    requests: int
    effects: int


@dataclass(slots=True)
class Run:
    """What a drill has in its hands while the load goes on. `seen` is what must not stay at zero, and more; `kept` is for
    a judgement of the drill's own.
    """

    place: Place
    load: Load
    watch: Watch
    events: Events
    chance: random.Random
    begun: Begun = field(default_factory=lambda: Begun(0, 0))
    seen: Counter[str] = field(default_factory=Counter)
    done: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def is_large(self) -> bool:
        """Enough jobs for every fault of the drill, and not only some of each kind."""
        return self.load.jobs >= 100

    def note(self, text: str) -> None:
        """What was done, for the report."""
        self.done.append(text)
        self.place.say(f"    {text}")

    def wait(self, what: str, is_true: Callable[[], bool], seconds: float = REACH_SECONDS) -> None:
        if not self.place.wait_until(is_true, seconds):
            raise LateError(what, seconds)

    def running(self) -> int:
        count: int = self.place.sql(RUNNING, [self.load.prefix])[0][0]
        return count

    def wait_running(self, jobs: int = 3) -> None:
        """Until so many jobs are held by some worker; books more, in bursts, where the load is over."""

        def are_held() -> bool:
            if self.load.is_over() and self.running() < jobs:
                self.book_more(max(MORE_MIN, self.load.jobs // MORE))
            return self.running() >= jobs

        self.wait("jobs in workers' hands", are_held)

    def book_more(self, count: int) -> None:
        for stay in self.place.stays(count):
            self.load.book(f"more-{stay['room_type']}", stay)

    def expect(self, *, holds: bool, otherwise: str) -> None:
        """Note a violation unless it holds."""
        if not holds:
            self.violations.append(otherwise)


def _ordinarily(_run: Run, found: Witnesses) -> list[str]:
    return judge.judge(found)


@dataclass(frozen=True, slots=True)
class Drill:
    """`done` says what is done to the stack, `rules` how the sandbox behaves meanwhile, `faults` does the rest.

    must_see      counters that fail the drill when they stay at zero
    recovers      what its recovery times are
    needs         servers that it stops: it runs only where they are its own
    judge         its own rules, where the ordinary ones do not hold
    excused       invariants of the database that its own rules see to
    """

    name: str
    done: str
    faults: Callable[[Run], None]
    must_see: Sequence[str]
    recovers: Recovery
    rules: Sequence[Mapping[str, Any]] = ()
    needs: frozenset[str] = frozenset()
    judge: Callable[[Run, Witnesses], list[str]] = _ordinarily
    excused: frozenset[str] = frozenset()


def declines() -> list[Mapping[str, Any]]:
    """One capture in ten and one ticket in ten is refused for good."""
    return [
        {"name": f"decline-{kind}", "do": "refuse", "match": kind, "probability": DECLINED}
        for kind in ("capture", "ticket")
    ]

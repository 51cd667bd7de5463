"""What happens at crash points: drawn before a history begins, carried out when the n-th reach of a point comes.

kill         the process is gone; what it had sent is on the wire all the same
error        an exception; the process lives
lost_before  its connection dies at the next write, which was not done
lost_after   its next write was done, and the reply is lost
pause        it stands still while the others go on, beyond its lease, and then goes on
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from django.db import connection

from ledger import crashpoints
from recovery.simulation.chronicle import Chronicle
from recovery.simulation.line import Line

KINDS = ("kill", "error", "lost_before", "lost_after", "pause")
# Of another app, or of people: no actor of the simulation comes by.
ELSEWHERE = ("booking.", "holds.", "resolution.", "webhook.")
# A thread has no connection and an exception in it is an answer; the publishing thread catches whatever its broker does.
THREADED = ("call.", "probe.", "tombstone.", "publish.")
IN_TRANSACTION = (
    *("submit.before_insert", "submit.after_insert", "local.after_handlers"),
    *("reclaim.before", "reclaim.after"),
)
# Where an owner that stands still knows something that the next one does not.
ZOMBIES = (
    "settle.before",
    "settle.after",
    "call.after",
    "probe.after",
    "renew.before",
    "local.before",
)
SLEEPER = "settle.after"  # between the commit of an attempt and its send
# Few histories come by: the first time somebody does, something happens.
RARE = ("probe.before", "tombstone.before", "tombstone.after")
RARE_SHARE = 0.4
FAULTS_MAX = 4
NTH_MAX = 5


def points() -> list[str]:
    """The crash points that a history can reach."""
    return [point for point in crashpoints.POINTS if not point.startswith(ELSEWHERE)]


def kinds(point: str) -> tuple[str, ...]:
    """What can happen at a point."""
    if point.startswith(THREADED):
        return ("kill", "pause")
    return tuple(kind for kind in KINDS if kind != "pause" or point not in IN_TRANSACTION)


def cases() -> list[tuple[str, str]]:
    return [(point, kind) for point in points() for kind in kinds(point)]


class Killed(BaseException):
    """SIGKILL: nothing of the process runs any more, no handler and no `except`."""


@dataclass(slots=True, eq=False)
class Fault:
    point: str
    kind: str
    nth: int


class Faults:
    """The faults of one history. The first case goes round with the seed, so that every range of seeds has them all."""

    def __init__(self, seed: int, draw: random.Random, line: Line, chronicle: Chronicle) -> None:
        every = cases()
        chosen = [every[seed % len(every)]]
        chosen += [draw.choice(every) for _ in range(draw.randrange(FAULTS_MAX))]
        chosen += [(draw.choice(ZOMBIES), "pause") for _ in range(draw.randrange(3))]
        chosen += [(SLEEPER, "pause") for _ in range(draw.randrange(3))]
        self.plan = [Fault(point, kind, 1 + draw.randrange(NTH_MAX)) for point, kind in chosen]
        self.plan[0].nth = 1 + seed // len(every) % 2
        rare = [point for point in RARE if draw.random() < RARE_SHARE]
        self.plan += [Fault(point, draw.choice(kinds(point)), 1) for point in rare]
        self.pause: Callable[[str], bool] = lambda _point: False
        self._line, self._chronicle = line, chronicle

    def reached(self, point: str) -> None:
        self._chronicle.count(f"reached:{point}")
        for fault in [f for f in self.plan if f.point == point]:
            fault.nth -= 1
            if fault.nth <= 0:
                self._happen(fault)

    def heal(self) -> None:
        self.plan.clear()
        self._line.lose("")

    def _happen(self, fault: Fault) -> None:
        gone = fault not in self.plan  # while another one paused here
        if gone or (fault.kind == "pause" and connection.in_atomic_block):
            return
        self.plan.remove(fault)
        self._chronicle.note("fault", fault.point, fault.kind)
        if fault.kind == "pause" and not self.pause(fault.point):
            return
        if fault.kind.startswith("lost"):
            self._line.lose(fault.kind, lambda: self._count(fault))
            return
        self._count(fault)
        if fault.kind == "kill":
            raise Killed(fault.point)
        if fault.kind == "error":
            raise crashpoints.CrashPointError(fault.point)

    def _count(self, fault: Fault) -> None:
        self._chronicle.count(f"fault:{fault.kind}")
        self._chronicle.count(f"point:{fault.point}")


@contextmanager
def watched(reached: Callable[[str], None]) -> Iterator[None]:
    """Within the block, every crash point tells."""
    with ExitStack() as armed:
        for point in points():
            armed.enter_context(crashpoints.armed(point, reached))
        yield

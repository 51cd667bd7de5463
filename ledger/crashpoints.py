"""Named gaps between two commits, or around a call, where a process can die. A no-op unless a test or a drill arms one.

Every point that production code may reach is in `POINTS`; reaching an unknown name is a programmer's error. A process
is armed from outside by AMENDS_CRASH, `point=kind` or `point=kind@n` (the n-th time), several joined by `;`; a test in
the same process arms a point with a callable. With AMENDS_CRASH_ONCE, the path of a file that is not there yet, only the
first point of all processes does anything: a pool starts a killed child again, armed as its parent was.

Kinds: kill (SIGKILL of this very process), error (an exception), pause (SIGSTOP: whoever armed it sends SIGCONT).
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POINTS: dict[str, str] = {
    "submit.before_insert": "nothing is written",
    "submit.after_insert": "rows are written, and committed unless a transaction of the caller's goes on",
    "submit.after_commit": "the job is accepted, no ticket yet",
    "publish.before": "about to ring a lane",
    "publish.after": "the broker took the ticket",
    "promote.before": "waiting jobs are due",
    "promote.after": "ranks are committed",
    "claim.before": "about to claim",
    "claim.after": "leases and fences are committed, not yet in memory",
    "renew.before": "about to renew leases",
    "renew.after": "leases are renewed",
    "settle.before": "outcomes are in memory only",
    "permits.before": "calls are decided on, a provider is limited or in trouble, nothing is taken",
    "permits.after": "permits are taken, no attempt is committed",
    "settle.after": "receipts and next attempts are committed, no call handed over",
    "call.before": "attempt committed, call about to be made",
    "call.after": "the call has returned, its outcome is in memory only",
    "probe.before": "about to ask a provider",
    "probe.after": "the provider's answer is in memory only",
    "tombstone.before": "about to tell a provider to refuse an operation id",
    "tombstone.after": "its answer is in memory only",
    "local.before": "about to run a local batch",
    "local.after_handlers": "handlers have run, nothing is committed",
    "local.after": "the batch is committed",
    "turn.before": "a cancel is accepted or deadlines have passed, nothing is written",
    "turn.after": "jobs go backward, nobody is told yet",
    "overdue.before": "jobs are far past their deadline and their pivot, nothing is written",
    "overdue.after": "they are parked, nobody is told yet",
    "reconcile.before": "sightings of jobs without an owner are about to be judged",
    "reconcile.after": "they are judged, nobody is told yet",
    "reclaim.before": "expired leases are about to be ended",
    "reclaim.after": "jobs are queued again, nobody is told yet",
    "ring.after_select": "a sweep has seen work, no ticket yet",
    "unsupported.before": "jobs that no build knows are about to be parked",
    "unsupported.after": "they are parked, nobody is told yet",
    "resolution.before": "a person's act is judged, nothing is written",
    "resolution.after": "the act is committed, nobody is told yet",
    "retain.before": "about to remove ended jobs",
    "retain.after": "a batch is removed",
    "booking.before_insert": "a request is validated",
    "booking.after_insert": "the bookings of a bulk and their jobs are written, not committed",
    "booking.before_response": "the booking is committed, the client not told",
    "holds.before": "expired holds are about to be given up",
    "holds.after": "a batch of holds is given up",
    "webhook.before": "events are pending and deliveries are due, nothing is written",
    "webhook.claimed": "deliveries are claimed, nothing is sent",
    "webhook.sent": "what endpoints answered is in memory only",
    "webhook.after": "answers are stored",
}

ARM_VARIABLE = "AMENDS_CRASH"
ONCE_VARIABLE = "AMENDS_CRASH_ONCE"
Armed = Callable[[str], None]
_armed: dict[str, Armed] = {}


class CrashPointError(Exception):
    """Raised at an armed point of kind `error`."""

    def __init__(self, point: str) -> None:
        self.point = point
        super().__init__(f"crash point {point}")


def reach(point: str) -> None:
    """Mark a gap. KeyError for a name that `POINTS` does not list."""
    assert point in POINTS, f"{point} is not a declared crash point"
    if _armed and (armed := _armed.get(point)) is not None:
        armed(point)


@contextmanager
def armed(point: str, what: Armed) -> Iterator[None]:
    """Within the block, `what(point)` runs whenever this process reaches the point."""
    assert point in POINTS, f"{point} is not a declared crash point"
    _armed[point] = what
    try:
        yield
    finally:
        _armed.pop(point, None)


def arm_from_environment(environ: dict[str, str] | None = None) -> None:
    """Arm what AMENDS_CRASH names; ValueError for an unknown point or kind."""
    environ = environ or dict(os.environ)
    for entry in filter(None, environ.get(ARM_VARIABLE, "").split(";")):
        point, _, rest = entry.partition("=")
        kind, _, nth = rest.partition("@")
        if point not in POINTS or kind not in _KINDS:
            raise ValueError(f"{ARM_VARIABLE}: {entry!r} names no known point and kind")
        _armed[point] = _counted(_KINDS[kind], int(nth or 1), environ.get(ONCE_VARIABLE, ""))


def _counted(what: Armed, nth: int, once: str) -> Armed:
    reached = 0

    def count(point: str) -> None:
        nonlocal reached
        reached += 1
        if reached == nth and _is_first(once):
            what(point)

    return count


def _is_first(once: str) -> bool:
    if not once:
        return True
    try:
        os.close(os.open(once, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _kill(_point: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_point: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _error(point: str) -> None:
    raise CrashPointError(point)


_KINDS: dict[str, Armed] = {"kill": _kill, "error": _error, "pause": _stop}

"""The threads that make the calls: bounded, outside any transaction, with nothing of the database.

The invariants: a thread that touches the database gets an error; no call is started that could outlast its job's lease
(checked right before the first byte, on the monotonic clock, which may only make it stop earlier); a call past its
deadline is given up, its thread abandoned, and its late answer handed out as such. One wire request per call.
"""

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import Any, Literal, Protocol, cast
from uuid import UUID

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ledger import clock, crashpoints, outcomes, telemetry
from ledger.saga import Call, Direction, Handler, Probe

ABANDON_GRACE_SECONDS = (
    0.5  # a handler that keeps its own deadline is not abandoned for a scheduler's delay
)


PERMIT_VOID = "permit_void"

Kind = Literal["call", "probe", "tombstone"]


@dataclass(frozen=True, slots=True)
class Permit:
    """When a call may begin, on this process's clock: not before, and not after. Without use it is void."""

    not_before: float
    not_after: float


class Leased(Protocol):
    """What a call needs of the job that it is made for."""

    lease_deadline: float


@dataclass(slots=True)
class Placed:
    """One call on its way: made by the loop, performed by a thread, returned to the loop."""

    owner: Leased
    job_id: UUID
    fence: int
    step: str
    direction: Direction
    kind: Kind
    handler: Handler | Probe
    call: Call
    permit: Permit | None = None
    asked_at: datetime | None = None  # by the database's clock, or a little earlier
    started_at: float | None = None
    returned_at: float = 0.0
    withdrawn: bool = False
    abandoned: bool = False
    outcome: outcomes.Sighted | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def overdue(self, now: float) -> bool:
        limit = self.call.timeout_seconds + ABANDON_GRACE_SECONDS
        return self.started_at is not None and now > self.started_at + limit

    def seconds(self) -> float:
        return self.returned_at - self.started_at if self.started_at is not None else 0.0


class DatabaseForbidden(Exception):
    """A handler used the database from a call thread: only the loop may."""

    def __init__(self) -> None:
        super().__init__("a call thread must not touch the database; a LOCAL step may")


class _NoDatabase:
    """Stands where a thread's connection would be."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise DatabaseForbidden


class Caller(Protocol):
    """What the loop needs of whoever makes its calls."""

    def free(self) -> int: ...

    def place(self, placed: Placed) -> None: ...

    def returned(self, seconds: float) -> Iterator[Placed]: ...

    def withdraw(self) -> None: ...


class Pool:
    """At most `slots` calls at once, plus as many abandoned ones. One per process, shared by its runs.

    One thread is called up at a time, and calls up the next before it begins: instant calls are made by a thread or two
    without a wake-up each, while calls that take time spread over as many threads as there are calls.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._todo: deque[Placed] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._is_calling_up = False
        self._done: SimpleQueue[Placed] = SimpleQueue()
        self._in_flight: dict[int, Placed] = {}
        self._threads = 0
        self._abandoned = 0

    def free(self) -> int:
        """Calls that may be placed now. Abandoned threads count, so that a hanging provider cannot grow the process."""
        return self.slots - len(self._in_flight) - max(0, self._abandoned - self.slots)

    def place(self, placed: Placed) -> None:
        self._in_flight[id(placed)] = placed
        self._todo.append(placed)
        if self._threads - self._abandoned < len(self._in_flight) and not self._start_thread():
            return
        self._call_up()

    def _start_thread(self) -> bool:
        """False: this machine has no thread left and no other of ours is there to serve; the call comes back unsent."""
        try:
            name = f"calls-{self._threads + 1}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        except RuntimeError as error:
            telemetry.emit("thread.refused", level="error", error_class=str(error))
            if self._threads > self._abandoned:
                return True  # behind what the others do now
            placed = self._todo.pop()
            placed.outcome = outcomes.NotSent("no_thread")
            self._done.put(placed)
            return False
        self._threads += 1
        return True

    def _call_up(self) -> None:
        """Wake one thread, unless one is waking: it will see what is to do, and call up the next."""
        if not self._is_calling_up:
            self._is_calling_up = True
            self._wake.put(None)

    def returned(self, seconds: float) -> Iterator[Placed]:
        """What has come back or is overdue; waits at most so long for the first."""
        yield from self._overdue()
        try:
            yield self._take(
                self._done.get(timeout=seconds) if seconds > 0 else self._done.get_nowait()
            )
            while True:
                yield self._take(self._done.get_nowait())
        except Empty:
            return

    def withdraw(self) -> None:
        """Calls that no thread has begun come back unsent."""
        for placed in self._in_flight.values():
            placed.withdrawn = True

    def _take(self, placed: Placed) -> Placed:
        if placed.abandoned:
            self._abandoned -= 1
            self._threads -= 1
        else:
            self._in_flight.pop(id(placed), None)
        return placed

    def _overdue(self) -> Iterator[Placed]:
        now = clock.monotonic()
        for placed in [p for p in self._in_flight.values() if p.overdue(now)]:
            with placed.lock:
                if placed.outcome is not None:
                    continue  # it is on its way back
                placed.abandoned = True
            del self._in_flight[id(placed)]
            self._abandoned += 1
            telemetry.emit(
                "call.abandoned", level="warning", step=placed.step, direction=placed.direction
            )
            yield placed

    def _serve(self) -> None:
        for alias in connections:
            connections[alias] = cast("BaseDatabaseWrapper", _NoDatabase())
        while True:
            self._wake.get()
            self._is_calling_up = (
                False  # before looking: whoever adds work after this wakes another
            )
            while (placed := self._next()) is not None:
                if self._todo:
                    self._call_up()
                if not self._make(placed):
                    return  # the pool has gone on without this thread

    def _next(self) -> Placed | None:
        try:
            return self._todo.popleft()
        except IndexError:
            return None

    def _make(self, placed: Placed) -> bool:
        """Make the call and hand its outcome back; False if it was given up meanwhile."""
        try:
            outcome = perform(placed)
        except BaseException as error:  # noqa: BLE001  a thread that died would keep its call, and its job, for ever
            outcome = outcomes.Unknown(type(error).__name__, {"error": str(error)})
        with placed.lock:
            placed.returned_at = clock.monotonic()
            placed.outcome = outcome
            is_ours = not placed.abandoned
        self._done.put(placed)
        return is_ours


def perform(placed: Placed) -> outcomes.Sighted:
    """Make the call at its time, if it still may: the last look at that is right before the first byte."""
    if placed.permit is not None:
        clock.pause(max(0.0, placed.permit.not_before - clock.monotonic()))
    if against := _against(placed, clock.monotonic()):
        return outcomes.NotSent(against, released=True)
    _reach_before(placed.kind)
    placed.started_at = clock.monotonic()
    outcome = outcome_of(placed.handler, placed.call)
    _reach_after(placed.kind)
    return outcome


def _against(placed: Placed, now: float) -> str:
    """Why the call must not begin now; empty when it may. None outlasts its lease, or comes later than its permit."""
    if placed.withdrawn:
        return "released"
    if placed.owner.lease_deadline - now < placed.call.timeout_seconds + ABANDON_GRACE_SECONDS:
        return "lease_too_short"
    is_late = placed.permit is not None and now > placed.permit.not_after
    return PERMIT_VOID if is_late else ""


def _reach_before(kind: Kind) -> None:
    match kind:
        case "call":
            crashpoints.reach("call.before")
        case "probe":
            crashpoints.reach("probe.before")
        case "tombstone":
            crashpoints.reach("tombstone.before")


def _reach_after(kind: Kind) -> None:
    match kind:
        case "call":
            crashpoints.reach("call.after")
        case "probe":
            crashpoints.reach("probe.after")
        case "tombstone":
            crashpoints.reach("tombstone.after")


def outcome_of(handler: Handler | Probe, call: Call) -> outcomes.Sighted:
    """Exactly one outcome, whatever the handler does: what it does not name is unknown."""
    try:
        found = handler(call)
    except (outcomes.Refused, outcomes.NotSent, outcomes.Throttled, outcomes.Unknown) as raised:
        return raised
    except BaseException as error:  # noqa: BLE001  any other ending, SystemExit too, proves nothing about the effect
        return outcomes.Unknown(type(error).__name__, {"error": str(error)})
    returned: object = found  # handlers are other people's code: their types are not proof
    if isinstance(returned, outcomes.Sighted):
        return returned
    return outcomes.Unknown("no_outcome", {"returned": type(returned).__name__})


_pool: Pool | None = None


def pool(slots: int) -> Pool:
    """The pool of this process; made with the first run."""
    global _pool  # noqa: PLW0603
    if _pool is None or _pool.slots != slots:
        _pool = Pool(slots)
    return _pool

"""One case: a fresh job of a saga under test, driven by the real engine until nothing is due, with at most one fault.

Whoever acts (a client, a run, a sweep) does so as a process of its own would: a fault ends that actor and nobody else.
All of it happens on one thread, calls included, so that the nth reach of a point is the same gap in every run; only those
who act while another one stands still have a thread, and with it a connection, of their own.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db import Error, connection

from ledger import (
    acts,
    calls,
    crashpoints,
    engine,
    leases,
    resolutions,
    retention,
    saga,
    sql,
    submission,
    tickets,
    turns,
)
from ledger.states import JOB_LANES
from recovery import sweeps
from recovery.matrix import outside
from recovery.matrix.faults import RINGING, WIRE, Fault, Killed, Line
from recovery.matrix.scripts import Script
from recovery.matrix.times import Time
from recovery.matrix.witness import Ending, Reach, Witness

PASSES_MAX, TURNS_MAX, TRIES_MAX = 60, 200, 4
DEADLINE_SECONDS = 20.0  # shorter than a lease
TERM = timedelta(days=1)
SWEEPS = (
    sweeps.reclaim,
    sweeps.expire_deadlines,
    sweeps.park_overdue,
    sweeps.park_unsupported,
    sweeps.reconcile,
    sweeps.promote,
    sweeps.ring,
)


@dataclass(frozen=True, slots=True)
class Stage:
    """What the cases of one saga share."""

    time: Time
    outside: outside.Outside
    definition: saga.Saga
    tenant: UUID
    staff: AbstractUser


class Inline:
    """Makes the calls of one run on the run's own thread, one at a time: `calls.Caller`."""

    def __init__(self) -> None:
        self._placed: deque[calls.Placed] = deque()

    def free(self) -> int:
        slots: int = settings.SLOTS
        return slots - len(self._placed)

    def place(self, placed: calls.Placed) -> None:
        self._placed.append(placed)

    def returned(self, seconds: float) -> Iterator[calls.Placed]:
        while self._placed:
            placed = self._placed.popleft()
            placed.outcome = calls.perform(placed)  # with its crash points
            yield placed

    def withdraw(self) -> None:
        for placed in self._placed:
            placed.withdrawn = True


class Play:
    """Runs one script to its end; afterwards `trace`, what was reached, and what was in doubt when its fault struck."""

    def __init__(self, stage: Stage, script: Script, fault: Fault | None = None) -> None:
        self.stage, self.script = stage, script
        self.trace: list[Reach] = []
        self.reached: Counter[str] = Counter()
        self.struck: list[Fault] = []
        self.doubts: dict[str, bool] = {}
        self._fault = fault
        self._pending = [f for f in (script.first, fault) if f is not None]
        self._key = uuid4().hex
        self._seen = Witness(stage.outside, stage.tenant, self._key)
        self._line = Line()
        self._actors = {threading.get_ident()}

    def run(self) -> Ending:
        script = self.script
        plan = outside.Plan(script.refuses, script.loses, script.turns_at, self._turn)
        self.stage.outside.plan = plan
        if script.retains:
            self._outlive()  # what earlier cases left is not to be removed with this one's job
        with ExitStack() as armed:
            armed.enter_context(connection.execute_wrapper(self._line))
            for point in crashpoints.POINTS:
                armed.enter_context(crashpoints.armed(point, self._reach))
            self._until_done(self._submit)
            if self._fault is None or self._fault.point in RINGING:
                tickets.flush()
            self._drain()
            if script.resolves:
                self._until_done(self._resolve)
                self._drain()
            if script.retains:
                self._until_done(self._outlive)
        return self._seen.ending()

    # --- who acts ----------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        deadline = timedelta(seconds=DEADLINE_SECONDS) if self.script.by_deadline else None
        submission.submit(
            tenant_id=self.stage.tenant,
            key=self._key,
            saga=self.stage.definition,
            request={},
            input={},
            deadline=deadline,
        )

    def _turn(self, job: UUID) -> None:
        if self.script.by_deadline:
            self.stage.time.pass_by(DEADLINE_SECONDS)
            self._until_done(sweeps.expire_deadlines)
        else:
            self._until_done(lambda: turns.cancel(job, by="client", reason="cancelled"))

    def _resolve(self) -> None:
        """A person who was not told looks again before they act again."""
        job, staff = self._seen.job(), self.stage.staff
        assert job is not None, "a parked job is there"
        if self._seen.ending().state == "parked":
            reason, words = "found in their own register", {"note": "seen by eye", "ref": "by-eye"}
            asked = acts.Asked(act="done", by=staff.get_username(), reason=reason, evidence=words)
            resolutions.act(job, asked, by=staff)

    def _outlive(self) -> None:
        self.stage.time.pass_by(2 * TERM.total_seconds())
        for _ in range(PASSES_MAX):
            if not retention.retain(TERM):
                return

    def _drive(self, lane: str) -> None:
        """One run of the engine, as a process of its own."""
        before, owner = leases.owner(), uuid4()
        leases.become(owner)
        try:
            self._act(lambda: _run(lane), owner)
        finally:
            leases.become(before)

    def _act(self, work: Callable[[], object], owner: UUID | None = None) -> bool:
        """False if the actor came to grief; then its connection is gone with it."""
        try:
            work()
        except Killed:
            sql.replace_connection()
            if owner is not None and self.struck[-1].kind == "kill":
                leases.end_owner(owner)
        except crashpoints.CrashPointError:
            sql.replace_connection()
        except Error as error:
            if sql.trouble(error) is not sql.Trouble.RECONNECT:
                raise
            sql.replace_connection()
        else:
            return True
        return False

    def _until_done(self, work: Callable[[], object]) -> None:
        """As whoever is not told that it was done: again."""
        assert any(self._act(work) for _ in range(TRIES_MAX)), "not done in many tries"

    def _drain(self, *, waits: bool = True) -> None:
        """Sweeps and runs until nothing moves; with `waits`, also past every due time and lease."""
        for _ in range(PASSES_MAX):
            before = self._seen.moves()
            for sweep in SWEEPS:
                self._act(sweep)
            for lane in JOB_LANES:
                self._drive(lane)
            if self._seen.moves() != before:
                continue
            wait = self._seen.wait()
            if wait is None or not waits:
                return
            self.stage.time.pass_by(wait + 0.1)
        raise AssertionError(f"still moving after {PASSES_MAX} passes: {self._seen.ending()}")

    # --- what happens at a point -------------------------------------------------------------------------------------

    def _reach(self, point: str) -> None:
        if point not in RINGING and threading.get_ident() not in self._actors:
            return
        self.reached[point] += 1
        if self._fault is None:
            self._note(point)
        for fault in self._pending:
            if (fault.point, fault.nth) == (point, self.reached[point]):
                self._pending.remove(fault)
                self.struck.append(fault)
                self._strike(fault)
                return

    def _note(self, point: str) -> None:
        situation, doubts = "", False
        if point not in RINGING:
            situation = self._seen.situation()
            doubts = bool(self._seen.in_doubt())
        self.trace.append(Reach(point, self.reached[point], situation, doubts))

    def _strike(self, fault: Fault) -> None:
        if fault.point not in RINGING:
            self.doubts = self._seen.in_doubt()
        match fault.kind:
            case "kill" | "vanish":
                raise Killed
            case "error":
                raise crashpoints.CrashPointError(fault.point)
            case "pause":
                self._stand_still()
            case _ if fault.point in WIRE:
                self.stage.outside.next_lost = "request" if fault.kind == "lost-before" else "reply"
            case _:
                self._line.lose(fault.kind)

    def _stand_still(self) -> None:
        """Beyond the lease, and others do what they can meanwhile."""
        with ThreadPoolExecutor(1) as others:
            others.submit(self._others).result(60)

    def _others(self) -> None:
        self._actors.add(threading.get_ident())
        try:
            with connection.execute_wrapper(self._line):
                self.stage.time.pass_by(settings.LEASE_SECONDS + 1)
                self._drain(waits=False)
        finally:
            self._actors.discard(threading.get_ident())
            connection.close()


def _run(lane: str) -> None:
    run = engine.Run(lane, pool=Inline())
    run.claim()
    for _ in range(TURNS_MAX):
        if not run.held:
            run.end()
            return
        for phase in (run.renew, run.take_in, run.settle, run.run_locals, run.claim):
            phase()
    raise AssertionError(f"a run still holds its job after {TURNS_MAX} turns")

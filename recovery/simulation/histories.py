"""One history: drawn from a seed, played to its end, healed until nothing moves, and judged.

One step at a time: a stage of a process, a call that lands, a sweep, a client, or time. Which comes next is drawn from the
seed, and nothing else decides.
"""

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from uuid import UUID

from django.db import Error, OperationalError, connection

from ledger import crashpoints, leases, retention, sql, tickets
from recovery import sweeps
from recovery.simulation import at_provider, clients, database, invariants, shapes, stock
from recovery.simulation.chronicle import Chronicle
from recovery.simulation.faults import SLEEPER, Faults, Killed
from recovery.simulation.line import Line
from recovery.simulation.mirror import Mirror, at
from recovery.simulation.processes import Process
from recovery.simulation.provider import Provider
from recovery.simulation.virtual import VirtualClock
from recovery.simulation.wires import Agenda, Wire

SWEEPS = (sweeps.reclaim, sweeps.promote, sweeps.reconcile, sweeps.expire_deadlines, sweeps.ring)
RARE_SWEEPS = (sweeps.park_overdue, sweeps.park_unsupported)
ODDS = {
    "process": 80,
    "sleep": 1.5,
    "submit": 8,
    "sweep": 7,
    "again": 1.5,
    "misuse": 0.7,
    "cancel": 2.5,
    "holds": 1,
    "double": 2,
    "revive": 4,
    "term": 0.7,
    "kill": 0.5,
    "retain": 0.5,
}
NESTED = ("process", "sweep", "submit", "revive", "double")
# Around a lease, and well within the lifetime of a request: that much is not promised beyond it.
PAUSE_SECONDS = (20, 38)
NAP_SECONDS = (
    5,
    21,
)  # short enough that a call still fits into the lease: what was committed is sent late
PAUSE_STEPS = 24
ENDS = {"waiting": "due_at", "running": "lease_until"}  # what a job of that state waits for


class History:
    """The stage and its scheduler. Everything that happens passes `act`, which says who does it."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # noqa: S311  a history that can be replayed, no secret
        self.clock = VirtualClock()
        self.chronicle = Chronicle(seed, self.clock)
        self.provider = Provider(self.draw, self.clock, self.chronicle)
        self.agenda = Agenda(self.clock)
        self.provider.later = self.agenda.later
        self.is_healed = False
        sagas = shapes.sagas(self.provider, self._fault_of_local)
        self.known = {saga.key: saga for saga in sagas}
        self.scene = invariants.Scene(
            self.chronicle, self.clock, Mirror(), self.provider, self.known
        )
        self.provider.on_request = lambda kind, service, call: at_provider.check_request(
            self.scene, kind, service, call
        )
        self.provider.on_effect = lambda operation: at_provider.check_effect(self.scene, operation)
        self.line = Line(self.clock, lambda: invariants.check_commit(self.scene))
        self.faults = Faults(seed, self.draw, self.line, self.chronicle)
        self.faults.pause = self.pause
        self.clients = clients.Clients(self.draw, self.chronicle, sagas)
        old = {key: saga for key, saga in self.known.items() if key[1] == 1}
        self.processes = [
            Process("new", self.known),
            Process("old", old),
            Process("two", self.known),
        ]
        self.tickets: list[str] = []
        self._rung: list[str] = []
        self._is_nested = False
        self._builds: dict[str, set[str]] = {}

    def begin(self) -> None:
        """Tenants, items, and processes."""
        with self.line.quiet():
            for tenant in sorted({order.tenant for order in self.clients.orders}):
                sql.fetch(
                    "INSERT INTO ledger_tenant (id, name) VALUES (%s, %s)", [tenant, str(tenant)]
                )
            sql.fetch("INSERT INTO sim.item SELECT unnest(%s::text[])", [list(clients.ITEMS)])
        self._revive()

    # --- Who acts ----------------------------------------------------------------------------------------------------

    def act(self, name: str, what: Callable[[], object], process: Process | None = None) -> bool:
        """Let somebody do something; what becomes of it is part of the history. False: it did not come to its end."""
        before, self.scene.acting = self.scene.acting, process
        self.chronicle.note(name)
        if process is not None:
            leases.become(process.owner)
        try:
            what()
        except Killed:
            self.chronicle.note(name, "killed")
            if process is not None:
                self._die(process)
        except (Error, crashpoints.CrashPointError) as error:
            self._fail(name, error, process)
        else:
            return True
        finally:
            self.scene.acting = before
            if before is not None:
                leases.become(before.owner)
            self._deliver()
        return False

    def _fail(self, name: str, error: Exception, process: Process | None) -> None:
        """An error that was to be expected of a fault ends what was done; any other is a violation of its own."""
        self.chronicle.note(name, "failed", type(error).__name__)
        if not isinstance(error, OperationalError | crashpoints.CrashPointError):
            self.chronicle.violate("ERROR", f"{name}: {type(error).__name__}: {error}")
        if process is not None:
            process.drop()

    def pause(self, point: str) -> bool:
        """Whoever acts stands still beyond a lease, and the others go on; False where that cannot be."""
        if self._is_nested or connection.in_atomic_block:
            return False
        process, self._is_nested = self.scene.acting, True
        believed = process.believes() if process else {}
        if process is not None:
            process.is_paused = True
        with database.acting_as("worker"):
            self._meanwhile(point, believed)
        if process is not None:
            process.is_paused = False
        if self._lost(believed):
            self.chronicle.count("zombie_woke")
        self._is_nested = False
        self.chronicle.note("woke", point)
        return True

    def _meanwhile(self, point: str, believed: Mapping[str, int]) -> None:
        """Time enough for a lease to end, or nearly; often it is over just when somebody else has taken over."""
        is_nap = point == SLEEPER and self.draw.random() < 0.6
        self.let_pass(self.draw.uniform(*(NAP_SECONDS if is_nap else PAUSE_SECONDS)))
        self.act("reclaim", sweeps.reclaim)
        for _ in range(0 if is_nap else PAUSE_STEPS):
            self.step(NESTED)
            if self._lost(believed) and self.draw.random() < 0.25:
                return

    def _lost(self, believed: Mapping[str, int]) -> bool:
        """Somebody else runs a job that is believed to be held."""
        rows = [job.row for job in self.scene.mirror.jobs.values()]
        return any(
            row["state"] == "running" and row["fence"] > believed.get(row["id"], row["fence"])
            for row in rows
        )

    # --- Steps -------------------------------------------------------------------------------------------------------

    def step(self, among: tuple[str, ...] = tuple(ODDS)) -> None:
        """Let the next thing happen."""
        self.happen()
        self.clock.pause(self.draw.uniform(0.0005, 0.01))
        what = self.draw.choices(among, [ODDS[name] for name in among])[0]
        getattr(self, f"_{what}")()

    def happen(self) -> None:
        """Let everything that is due happen: requests land, calls begin, answers come."""
        for life, what in self.agenda.due():
            assert life is None or isinstance(life, Process)
            self.act(f"wire {life.name}" if life else "wire", what, life)

    def let_pass(self, seconds: float) -> None:
        """Time passes, and what is due on the way happens at its time: a wire keeps its promises."""
        until = self.clock.micros + round(seconds * 1e6)
        while (soonest := self.agenda.next_at()) is not None and soonest < until:
            self.clock.micros = max(self.clock.micros, soonest)
            self.happen()
        self.clock.micros = max(self.clock.micros, until)

    def _process(self) -> None:
        ready = [p for p in self.processes if p.can_go_on()]
        idle = [p for p in self.processes if not (p.is_dead or p.is_paused or p.run)]
        if self.tickets and idle and (not ready or self.draw.random() < 0.3):
            process = self.draw.choice(idle)
            process.start(self.tickets.pop(0))
            ready = [process]
        if not ready:
            if not self._is_nested:
                self._beat()
            return
        self.go_on(self.draw.choice(ready))

    def go_on(self, process: Process) -> None:
        """One stage of a process."""
        self.act(process.name, process.step, process)
        for job in process.believes():
            builds = self._builds.setdefault(job, set())
            builds.add(process.name)
            if {"new", "old"} <= builds:
                self.chronicle.counters["job_of_both_builds"] = 1
        if process.is_leaving and process.run is None and not process.is_dead:
            self.chronicle.count("drained")
            process.die()

    def _beat(self) -> None:
        """Nobody has anything to do: beat comes by, often just when a wait is over; or time passes."""
        now = self.clock.now()
        rows = [job.row for job in self.scene.mirror.jobs.values() if job.row["state"] == "waiting"]
        if (
            any((due := at(row["due_at"])) and due <= now for row in rows)
            and self.draw.random() < 0.7
        ):
            self.act("promote", sweeps.promote)
        else:
            self._sleep()

    def _sleep(self) -> None:
        """Time passes: to the next thing that will happen, or just some."""
        soonest = self.next_at()
        if soonest is not None and self.draw.random() < 0.9:
            self.let_pass((soonest - self.clock.micros) / 1e6)
        else:
            self.let_pass(self.draw.choices((0.2, 3, 12, 35, 1_900), (10, 10, 4, 2, 0.2))[0])

    def next_at(self) -> int | None:
        """When the next call begins, lands or answers, the next wait is over or the next lease ends; not before now."""
        now = self.clock.micros
        moments = [
            self.clock.at(moment) + 1
            for job in self.scene.mirror.jobs.values()
            if (column := ENDS.get(job.row["state"])) and (moment := at(job.row[column]))
        ]
        times = [time for time in moments if time > now]
        if (soonest := self.agenda.next_at()) is not None:
            times.append(max(soonest, now))
        return min(times, default=None)

    def _submit(self) -> None:
        if waiting := self.clients.waiting():
            order = self.draw.choice(waiting)
            self.act(f"submit {order.key}", lambda: self.clients.submit(order))

    def _again(self) -> None:
        order = self.draw.choice(self.clients.orders)
        self.act(f"again {order.key}", lambda: self.clients.submit(order))

    def _misuse(self) -> None:
        known = [order for order in self.clients.orders if order.told]
        if known:
            order = self.draw.choice(known)
            self.act(f"misuse {order.key}", lambda: self.clients.misuse(order))

    def _cancel(self) -> None:
        known = [order for order in self.clients.orders if order.told]
        doubtful = [order for order in known if self._is_in_doubt(str(order.told[0]))]
        if known:
            order = self.draw.choice(doubtful or known)
            self.act(f"cancel {order.key}", lambda: self.clients.cancel(order))

    def _is_in_doubt(self, job_id: str) -> bool:
        """A call is out, or nobody knows what became of one: the moment when a cancel is hardest."""
        job = self.scene.mirror.jobs[job_id]
        return any(invariants.unsettled(job, a["step"], a["direction"]) for a in job.attempt)

    def _sweep(self) -> None:
        sweep = self.draw.choice(SWEEPS)
        had = bool(self.tickets)
        self.act(sweep.__name__, sweep)
        if sweep is sweeps.ring and self.tickets and not had:
            self.chronicle.count("sweep_rang")
        if sweep is sweeps.expire_deadlines:
            for rare in RARE_SWEEPS:
                self.act(rare.__name__, rare)

    def _holds(self) -> None:
        self.act("expire holds", stock.expire)

    def _retain(self) -> None:
        """Nothing is a day old: it must find nothing, whatever happens to it."""
        with database.acting_as("retention"):
            self.act("retain", lambda: retention.retain(timedelta(days=1)))

    def _double(self) -> None:
        if self.tickets:
            self.tickets.append(self.tickets[0])
            self.chronicle.count("ticket_doubled")

    def _revive(self) -> None:
        for process in self.processes:
            if process.is_dead:
                wire = Wire(process, self.agenda, self.provider, self.draw, self.draw.randint(1, 3))
                process.live(UUID(int=self.draw.getrandbits(128)), wire)
                self.chronicle.note("live", process.name)

    def _term(self) -> None:
        alive = [p for p in self.processes if p.run is not None and not p.is_paused]
        if alive:
            self.draw.choice(alive).is_leaving = True

    def _kill(self) -> None:
        alive = [p for p in self.processes if p.run is not None and not p.is_paused]
        if alive:
            self._die(self.draw.choice(alive))

    def _die(self, process: Process) -> None:
        """It is gone; its parent may see that at once."""
        owner = process.owner
        process.die()
        self.scene.dead.add(str(owner))
        self.chronicle.note(process.name, "is dead")
        self.chronicle.count("killed")
        if self.draw.random() < 0.4:
            self.agenda.later(0.1, lambda: self._watched(owner))

    def _watched(self, owner: UUID) -> None:
        for lane in sorted(leases.end_owner(owner)):
            tickets.ring(lane)

    # --- The broker --------------------------------------------------------------------------------------------------

    def ring(self, lane: str) -> None:
        """A ticket on its way: it must not be rung before what it rings for is committed."""
        if connection.in_atomic_block:
            self.chronicle.violate("RING", f"lane {lane} was rung inside a transaction")
        crashpoints.reach("publish.before")
        self._rung.append(lane)
        crashpoints.reach("publish.after")

    def _deliver(self) -> None:
        """In the order of their names: the order of rings is the only thing that a set decides."""
        for lane in sorted(self._rung):
            copies = 1 if self.is_healed else self.draw.choices((0, 1, 2), (12, 80, 8))[0]
            self.chronicle.count(f"ticket_copies:{copies}")
            self.tickets += [lane] * copies
        self._rung.clear()

    def _fault_of_local(self, _call: object) -> None:
        if not self.is_healed and self.draw.random() < 0.03:
            self.chronicle.count("local_raised")
            raise ValueError("a LOCAL handler failed")

    def is_leaving(self) -> bool:
        return self.scene.acting is not None and self.scene.acting.is_leaving

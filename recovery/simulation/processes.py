"""A worker process of the simulation: the real `engine.Run`, its stages called one at a time in the order of `engine.drive`.

It dies of a kill, and comes back as another owner; it drops its run, and keeps its leases, after an error; it is paused and
goes on with what it believes. A build may know fewer versions than another.
"""

from collections.abc import Mapping
from uuid import UUID

from ledger import clock, engine, holding, saga
from recovery.simulation.wires import Wire

STAGES = ("renew", "take_in", "settle", "run_locals", "claim")
Known = Mapping[tuple[str, int], saga.Saga]


class Process:
    def __init__(self, name: str, known: Known) -> None:
        self.name = name
        self.known = known
        self.owner = UUID(int=0)
        self.wire: Wire | None = None
        self.run: engine.Run | None = None
        self.is_dead = True
        self.is_paused = False
        self.is_leaving = False
        self._stage = 0
        self._turned_at = 0.0

    def live(self, owner: UUID, wire: Wire) -> None:
        """A new process: nothing of the old one is left."""
        self.owner, self.wire, self.run = owner, wire, None
        self.is_dead = self.is_paused = self.is_leaving = False

    def die(self) -> None:
        self.is_dead, self.run = True, None

    def drop(self) -> None:
        """Its run ended in an error; its leases are left to expire."""
        self.run = None

    def holds(self, job_id: str) -> holding.Held | None:
        """What it believes to hold."""
        return self.run.held.get(UUID(job_id)) if self.run is not None else None

    def start(self, lane: str) -> None:
        """Take a ticket."""
        assert self.wire is not None, "a process has a pool"
        self.run = engine.Run(lane, pool=self.wire)
        self.run._known = dict(self.known)  # noqa: SLF001  a build of its own, in a process of many
        self._stage = STAGES.index("claim")

    def step(self) -> str:
        """The next stage of its run, as the loop would call it."""
        assert self.run is not None, "only a process with a run goes on"
        stage = STAGES[self._stage]
        getattr(self.run, stage)()
        self._stage = (self._stage + 1) % len(STAGES)
        self._turned_at = clock.monotonic()
        if stage == "claim" and not self.run.held:
            self.run.end()
            self.run = None
        return stage

    def collect(self) -> None:
        """Take in what came when nothing was held any more, as its next run will, whenever that is."""
        self.run = engine.Run("forward", pool=self.wire)
        self.run.take_in()
        self.run = None

    def can_go_on(self) -> bool:
        """There is something to do now, other than to wait for an answer."""
        if self.is_dead or self.is_paused or self.run is None:
            return False
        assert self.wire is not None, "a process has a pool"
        waits = all(held.awaits is not None for held in self.run.held.values())
        is_idle = self._stage == 0 and waits and not self.wire.has_news()
        return not is_idle or clock.monotonic() - self._turned_at > 1.0

    def believes(self) -> dict[str, int]:
        """The fences under which it holds jobs."""
        return {str(h.id): h.fence for h in self.run.held.values()} if self.run else {}

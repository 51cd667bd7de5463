"""How any job is driven: one loop per worker process, over all the jobs that the process holds.

Each turn: renew the leases → take in what came back → settle it all in one commit, next attempts included → hand the
calls to threads → run LOCAL steps in batches → claim into free slots. The loop owns the database connection; the threads
own the calls. A slow call holds up only its own job, and no transaction spans a call: a call is handed over outside
`atomic()`, after the commit of its attempt, and both are asserted.

Crash anywhere and another process goes on: whatever this one knew and had not stored is found again by asking the
provider, or sent again under the same operation id.
"""

from collections.abc import Callable
from uuid import UUID

from django.conf import settings
from django.db import connection

from ledger import (
    actions,
    calls,
    clock,
    crashpoints,
    holding,
    leases,
    local_batches,
    permits,
    persist,
    saga,
    sql,
    telemetry,
    tickets,
    versions,
)
from ledger.holding import Held
from ledger.journal import Write, Written
from ledger.operations import Attempt
from ledger.states import JobState

# While jobs are held: between claims that found nothing, or that would fill only an eighth of the slots.
CLAIM_PAUSE_SECONDS = 0.02
WAIT_SECONDS_MAX = 0.25


def never_leaving() -> bool:
    return False


leaving: Callable[[], bool] = never_leaving  # a worker's own says true once it was told to stop
makes_way = True  # for a suspect, by claiming nothing until nothing is held: in a worker, one process in four


def drive(lane: str) -> int:
    """Drive jobs of this lane until none can be claimed, the process is told to leave, or RUN_SECONDS have passed.

    Returns how many jobs it claimed. Raises what the database raises once the leases are over.
    """
    until = clock.monotonic() + settings.LEASE_SECONDS / 3
    sql.persist(lambda: versions.report(saga.registered()), until)
    run = Run(lane)
    run.claim()
    while run.held:
        run.renew()
        run.take_in()
        run.settle()
        run.run_locals()
        run.claim()
    run.end()
    return run.claimed


class Run:
    """One run of the loop. All its waits are bounded by the leases it holds."""

    def __init__(self, lane: str, pool: calls.Caller | None = None) -> None:
        self.lane = lane
        self.held: dict[UUID, Held] = {}
        self.claimed = 0
        self._pool = pool or calls.pool(settings.SLOTS)
        self._known = {definition.key: definition for definition in saga.registered()}
        self._stop_at = clock.monotonic() + settings.RUN_SECONDS
        self._renew_at = self._claim_at = 0.0
        self._worth_a_claim = 0  # free slots from which a claim does not wait for its pause
        self._has_rung = False

    def renew(self) -> None:
        """Extend every lease, first in the turn; a job that does not come back belongs to somebody else now."""
        asked_at = clock.monotonic()
        if asked_at < self._renew_at:
            return
        held = [h.claimed.lease._replace(seq=h.seq) for h in self.held.values()]
        renewed = sql.persist(lambda: leases.renew(held), self._deadline())
        self._renew_at = asked_at + min(settings.HEARTBEAT_SECONDS, _too_short_after())
        for job in list(self.held.values()):
            if job.id in renewed:
                job.turn(renewed[job.id])
                job.lease_deadline = asked_at + settings.LEASE_SECONDS
            else:
                self._drop(job, "renew")

    def take_in(self) -> None:
        """Collect what has come back. It is in memory only until `settle`; a late answer is a sighting, and so is what a
        provider says when it is asked or told to refuse.
        """
        seen = []
        for placed in self._pool.returned(self._patience()):
            held = self.held.get(placed.job_id)
            if held is None or held.awaits is not placed:
                telemetry.emit("call.late", level="warning", step=placed.step)
                kind = "late" if placed.kind == "call" else placed.kind
                seen.append(holding.sighted(placed, kind))
            elif placed.kind != "call":
                held.awaits = None
                seen.append(holding.sighted(placed, placed.kind))
            else:
                held.hear(placed)
        at = persist.sight(seen, self._deadline())
        for sighting in seen:
            if (held := self.held.get(sighting.job_id)) is not None:
                held.see(sighting, at)

    def settle(self) -> None:
        """Plan every job that nothing is out for, ask for permits, store it all in one commit, hand the calls over."""
        crashpoints.reach("settle.before")
        is_leaving = self._is_leaving()
        ready = [held for held in self.held.values() if held.is_ready(leaving=is_leaving)]
        decided = [(held, held.decide(leaving=is_leaving)) for held in ready]
        decided = permits.pass_through(decided, self._deadline())
        stored = persist.store([(h, w) for h, w in decided if not w.is_empty()], self._deadline())
        if stored:  # a turn that stored nothing left no gap
            crashpoints.reach("settle.after")
        for held, write in decided:
            if write.is_empty():
                self._hand_over(held)
            else:
                self._go_on(held, write, stored[held.id])

    def run_locals(self) -> None:
        """Run LOCAL steps, many in one transaction, and go on with what they lead to."""
        ready = [h for h in self.held.values() if isinstance(h.next, actions.RunLocal)]
        until = min(self._deadline(), clock.monotonic() + settings.LEASE_SECONDS / 3)
        for held, write, written in local_batches.run(ready, until, leaving=self._is_leaving()):
            self._go_on(held, write, written)
        if any(held.next is None for held in ready):
            self._renew_at = 0.0

    def claim(self) -> None:
        """Promote, then claim into free slots. A claim that comes back full rings for the other processes at once."""
        if not self.held:
            self.take_in()  # what a run that failed left with the pool would fill its slots for ever
        free = min(self._pool.free(), settings.SLOTS - len(self.held))
        asked_at = clock.monotonic()
        too_soon = bool(self.held) and asked_at < self._claim_at and free < self._worth_a_claim
        if free <= 0 or too_soon or self._is_leaving() or self._is_alone_with_suspect():
            return
        # What this run holds is not given up for want of more: with jobs held, as long as any other write.
        until = self._deadline() if self.held else asked_at + settings.LEASE_SECONDS / 3
        known = list(self._known)
        suspect = (makes_way or not self.held) and persist.has_suspect(self.lane, known, until)
        if suspect and self.held:
            return
        claimed = persist.claim(self.lane, 1, known, until, suspect=True) if suspect else []
        claimed = claimed or persist.claim(self.lane, free, known, until)
        for job, entries in claimed:
            definition = self._known[job.saga, job.version]
            self.held[job.id] = Held(job, definition, entries, asked_at + settings.LEASE_SECONDS)
        self.claimed += len(claimed)
        self._claim_at = clock.monotonic() + CLAIM_PAUSE_SECONDS
        self._worth_a_claim = settings.SLOTS // 8 if claimed else settings.SLOTS + 1
        if len(claimed) == free and not self._has_rung:
            self._has_rung = True
            tickets.ring(self.lane)

    def end(self) -> None:
        """A run that stops before its lane is empty rings for the next one, so that no job waits for a sweep."""
        if self._is_leaving():
            tickets.ring(self.lane)

    def _is_alone_with_suspect(self) -> bool:
        """Until its first receipt, or its process's death: then it is known what killed it."""
        return any(held.is_suspect for held in self.held.values())

    def _go_on(self, held: Held, write: Write, written: Written) -> None:
        """From what the database stored to what it allows."""
        if written.result == "stale":
            self._drop(held, "settle", write)
            return
        held.settled(write, written)
        if not written.fits:  # it was turned meanwhile: plan again with what the database says
            return
        holding.count(held, write)
        if write.state is JobState.RUNNING:
            self._hand_over(held)
            return
        del self.held[held.id]
        if write.lane != self.lane and write.state is JobState.WAITING:
            tickets.ring(write.lane)

    def _hand_over(self, held: Held) -> None:
        """Give a call to a thread: outside any transaction, and after the commit of its attempt."""
        action = held.next
        if isinstance(action, actions.RunLocal) or not isinstance(
            action, actions.Send | actions.Ask | actions.Bury
        ):
            return
        assert not connection.in_atomic_block, "no transaction spans a call"
        assert not held.news, "what was learned is stored before the next call"
        if isinstance(action, actions.Send):
            last = held.entries[-1]
            assert isinstance(last, Attempt), "a call needs its committed attempt"
            assert last.n == action.n, "the call is the one that was committed"
        held.awaits = held.place(action)
        self._pool.place(held.awaits)

    def _drop(self, held: Held, what: str, write: Write | None = None) -> None:
        """Somebody else owns it: nothing of ours is written; what we know becomes a sighting."""
        del self.held[held.id]
        telemetry.stale_writes.labels(write=what).inc()
        telemetry.emit(
            "write.refused", level="warning", job=str(held.id), fence=held.fence, write=what
        )
        until = clock.monotonic() + settings.LEASE_SECONDS
        persist.sight([holding.unheard(held, r) for r in (write.receipts if write else [])], until)

    def _is_leaving(self) -> bool:
        if not leaving() and clock.monotonic() < self._stop_at:
            return False
        self._pool.withdraw()
        return True

    def _patience(self) -> float:
        """How long to wait for a call to come back: not at all when a job is ready to go on."""
        if not self.held or any(held.awaits is None for held in self.held.values()):
            return 0.0
        return min(WAIT_SECONDS_MAX, max(self._claim_at - clock.monotonic(), CLAIM_PAUSE_SECONDS))

    def _deadline(self) -> float:
        """Until when a write may be repeated: the first lease to end."""
        none_held = clock.monotonic() + settings.LEASE_SECONDS
        return min((held.lease_deadline for held in self.held.values()), default=none_held)


def _too_short_after() -> float:
    """Age of a lease from which the longest call would not fit in it, and would be given back again and again."""
    margin = 2 * calls.ABANDON_GRACE_SECONDS
    age: float = settings.LEASE_SECONDS - settings.CALL_SECONDS_MAX - margin
    return age

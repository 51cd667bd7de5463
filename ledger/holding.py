"""One job that this process holds: what it knows of it in memory, and the write that it is about to make for it.

`decide` asks the planner until the action needs the outside, a wait or the end, and turns it into one guarded write; what
it learned on the way stays news until `settled` hears from the database that it is stored, or `forget` that it is not.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings

from ledger import (
    actions,
    calls,
    checkpoints,
    clock,
    evidence,
    operations,
    outcomes,
    pacing,
    planner,
    policy,
    saga,
    sightings,
    telemetry,
)
from ledger.journal import NewAttempt, NewReceipt, Write, Written
from ledger.leases import Claimed
from ledger.operations import Attempt, Entry, Receipt
from ledger.outcomes import FINAL_OUTCOMES, ReceiptOutcome
from ledger.saga import Direction
from ledger.states import ENDED, JobState, Lane, ParkedReason

GIVE_BACK = actions.Wait(timedelta(), "")
STAY = actions.Wait(timedelta(), " ")  # the job stays, and is planned again in the next turn
Operations = Mapping[operations.Key, operations.Operation]


class Held:
    """A job under this process's lease."""

    def __init__(
        self, claimed: Claimed, definition: saga.Saga, entries: list[Entry], lease_deadline: float
    ) -> None:
        self.id: UUID = claimed.id
        self.fence: int = claimed.fence
        self.token: UUID = claimed.token
        self.seq: int = claimed.seq
        self.direction: Direction = claimed.direction
        self.is_suspect: bool = claimed.suspect
        self.claimed = claimed
        self.definition = definition
        self.entries = entries
        self.lease_deadline = lease_deadline
        self.news: list[Entry] = []
        self.next: actions.Action | None = None
        self.awaits: calls.Placed | None = None
        self.permit: calls.Permit | None = None
        self.voids = 0  # permits in a row that were void before its call began
        self._echoes: list[tuple[str, pacing.Heard]] = []
        self.timeouts = (
            0  # how often its LOCAL step was too slow for a statement; `local_batches` counts
        )
        self._parks: actions.Park | None = None
        self._input: Any = None
        self._policy = policy.current()
        self._clock = (claimed.now, clock.monotonic())

    def now(self) -> datetime:
        """The database's time when it last spoke, plus what has passed here since; behind by the reply's way at most."""
        at, heard = self._clock
        return at + timedelta(seconds=clock.monotonic() - heard)

    def is_ready(self, *, leaving: bool) -> bool:
        """Nothing is out for it, and it does not wait for a local batch (a leaving process gives it back instead)."""
        waits_for_batch = isinstance(self.next, actions.RunLocal) and not self.news and not leaving
        return self.awaits is None and not waits_for_batch

    def hear(self, placed: calls.Placed) -> None:
        """Its call came back, or is given up: then the outcome is unknown now."""
        self.awaits = None
        outcome = placed.outcome or outcomes.Unknown("deadline")
        if isinstance(outcome, outcomes.NotLanded):
            outcome = outcomes.Unknown("no_outcome", {"returned": "NotLanded"})
        is_out = placed.outcome is None  # its thread is: what it brings later is a sighting
        self.learn(placed.step, placed.direction, placed.call.n, outcome, is_out=is_out)
        self._echo(self.news[-1])
        name = evidence.of(outcome)[0]
        labels = (placed.step, placed.direction, name)
        telemetry.operation_seconds.labels(*labels).observe(placed.seconds())

    def see(self, sighting: sightings.NewSighting, at: datetime | None) -> None:
        """A sighting that was recorded, for the planner; at the database's time, from which a wait counts."""
        s, at = sighting, at or self.now()
        self.entries.append(
            operations.Sighting(
                s.step, s.direction, s.n, s.kind, s.outcome, s.evidence, at, s.fence
            )
        )
        if s.kind != "late":
            self._echo(self.entries[-1])

    def take_echoes(self) -> list[tuple[str, pacing.Heard]]:
        """What came back since the last time, by provider: how well each answers."""
        echoes, self._echoes = self._echoes, []
        return echoes

    def learn(
        self,
        step: str,
        direction: Direction,
        n: int,
        outcome: outcomes.Outcome,
        *,
        is_out: bool = False,
    ) -> None:
        """Take an outcome in. It is stored first, with the next write, and judged by the planner after that."""
        name, found = evidence.of(outcome)
        if is_out:
            found["abandoned"] = True
        self.news.append(
            Receipt(step, direction, n, ReceiptOutcome(name), found, self.now(), self.fence)
        )

    def learn_local(self, action: actions.RunLocal, outcome: outcomes.Outcome) -> None:
        """Attempt and receipt of a LOCAL operation, which commit together."""
        self.news.append(
            Attempt(
                action.step.name,
                action.direction,
                action.n,
                self.fence,
                self.now(),
                action.fingerprint,
                action.arguments if action.n == 1 else None,
            )
        )
        self.learn(action.step.name, action.direction, action.n, outcome)

    def park(self, reason: ParkedReason, detail: str) -> None:
        """Whatever the plan would be: the next write parks this job."""
        self._parks = actions.Park(reason, "", detail)
        self.next = None

    def forget_unwritable(self, detail: str) -> None:
        """The database will not take what was learned: keep its length and hash, and park."""
        raw = repr([e.evidence for e in self.news if isinstance(e, Receipt)]).encode(
            "utf-8", "backslashreplace"
        )
        kept = {"unwritable": True, "length": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
        self.news = [
            replace(
                e,
                outcome=ReceiptOutcome.UNKNOWN,
                evidence=kept | {k: v for k, v in e.evidence.items() if k == "abandoned"},
            )
            for e in self.news
            if isinstance(e, Receipt) and not self._is_local(e)
        ]
        self.park(ParkedReason.UNWRITABLE, detail)

    def forget(self) -> None:
        """A transaction was rolled back: nothing of the news happened."""
        self.news.clear()
        self._parks = None

    def turn(self, direction: Direction) -> None:
        """Take over the direction that the database holds: a LOCAL step that was planned for the other one is void."""
        if direction is not self.direction and isinstance(self.next, actions.RunLocal):
            self.next = None
        self.direction = direction

    def decide(self, *, leaving: bool, instead: actions.Wait | None = None) -> Write:
        """The next write; `self.next` is what to do once it is stored. `instead`: in place of a call."""
        self.permit = None
        try:
            action, direction, ops = self._plan()
        except Exception as error:  # noqa: BLE001  an impossible journal stops that job, never the worker
            name = type(error).__name__
            telemetry.emit("plan.failed", level="error", job=str(self.id), error_class=name)
            self.park(ParkedReason.CONFLICT, f"planning raised {name}: {error}")
            action, direction, ops = self._plan()
        if isinstance(action, actions.Send | actions.Ask | actions.Bury):
            action = GIVE_BACK if leaving else (instead or action)
        self.next = None if action is STAY else action
        return self._write(action, direction, ops)

    def settled(self, write: Write, written: Written) -> None:
        """Make memory what the database now holds."""
        assert written.result != "stale", "a stale job is dropped, not settled"
        assert written.at is not None, "a stored write has a time"
        is_turned = written.direction is not write.direction  # before this write, or since
        if not written.fits or (is_turned and isinstance(self.next, actions.RunLocal)):
            self.next = None  # what was planned is void; a stored attempt is not, and is sent
        self.seq, self.direction = written.seq, written.direction
        self._clock = (written.at, clock.monotonic())
        self.is_suspect = self.is_suspect and not write.receipts
        # At the time of the database: by our own estimate a wait could be over at once, where this process stood still.
        self.entries.extend(replace(entry, at=written.at) for entry in self.news)
        self.news.clear()
        if written.fits and isinstance(self.next, actions.Send) and write.attempts:
            a = write.attempts[-1]
            if not isinstance(self.next, actions.RunLocal):
                arguments = a.arguments if a.n == 1 else None
                self.entries.append(
                    Attempt(
                        a.step, a.direction, a.n, self.fence, written.at, a.fingerprint, arguments
                    )
                )

    def place(self, action: actions.Send | actions.Ask | actions.Bury) -> calls.Placed:
        """The call that a stored attempt, or a question, allows."""
        effect = action.step.effect_of(action.direction)
        assert isinstance(effect, saga.Effect), "a LOCAL step is not called from a thread"
        kind, handler = _handler(action, effect)
        assert callable(handler), "the planner sends only what has a handler"
        return calls.Placed(
            owner=self,
            job_id=self.id,
            fence=self.fence,
            step=action.step.name,
            direction=action.direction,
            kind=kind,
            asked_at=self.now(),
            permit=self.permit,
            handler=handler,
            call=self.call(action, min(effect.call_seconds, settings.CALL_SECONDS_MAX)),
        )

    def call(self, action: actions.Send | actions.Ask | actions.Bury, seconds: float) -> saga.Call:
        return saga.Call(
            operation_id=saga.operation_id(self.id, action.step.name, action.direction),
            job_id=self.id,
            tenant=self.claimed.tenant,
            n=action.n,
            arguments=action.arguments,
            timeout_seconds=seconds,
        )

    def _echo(self, said: Entry) -> None:
        """Of a call that was made; of its provider, where the effect names one."""
        assert isinstance(said, Receipt | operations.Sighting), "what a call brought"
        is_void = said.evidence.get("reason") == calls.PERMIT_VOID
        self.voids = self.voids + 1 if is_void else 0
        step = self.definition.step(said.step)
        effect = step.effect_of(said.direction) if step is not None else None
        if not isinstance(effect, saga.Effect) or said.evidence.get("released"):
            return
        if effect.provider:
            heard = pacing.Heard(str(said.outcome), operations.asked_patience(said))
            self._echoes.append((effect.provider, heard))

    def _is_local(self, receipt: Receipt) -> bool:
        step = self.definition.step(receipt.step)
        return step is not None and isinstance(step.effect_of(receipt.direction), saga.Local)

    def _plan(self) -> tuple[actions.Action, Direction, Operations]:
        """Up to the action that needs the outside, a wait or the end; what evidence decides on the way is news."""
        known = [*self.entries, *self.news]
        if self._parks is not None:
            return self._parks, self.direction, operations.fold(known)
        if self._input is None:
            self._input = self.definition.input(**self.claimed.input)
        job = planner.Job(self.id, self._input, self.direction, self.claimed.lane)
        last: planner.Planned | None = None
        for last in planner.ahead(self.definition, job, known, self.now(), self._policy):
            if last.receipt is not None:
                self.news.append(replace(last.receipt, fence=self.fence))
        assert last is not None, "a plan has at least one action"
        return last.action, last.direction, last.ops

    def _write(self, action: actions.Action, direction: Direction, ops: Operations) -> Write:
        receipts = [e for e in self.news if isinstance(e, Receipt)]
        write = Write(
            job_id=self.id,
            fence=self.fence,
            token=self.token,
            seq=self.seq,
            knows=self.direction,
            direction=direction,
            lane=self.claimed.lane,
            receipts=[
                NewReceipt(r.step, r.direction, r.n, r.outcome, r.evidence) for r in receipts
            ],
            attempts=[_new_attempt(e) for e in self.news if isinstance(e, Attempt)],
        )
        sends: str | None = None
        if isinstance(action, actions.Send) and not isinstance(action, actions.RunLocal):
            write.attempts.append(
                NewAttempt(
                    action.step.name,
                    action.direction,
                    action.n,
                    action.arguments,
                    action.fingerprint,
                )
            )
            sends = action.step.name if action.direction is Direction.FORWARD else None
        write.pivot_sent = planner.pivot_may_be_sent(self.definition, ops, sends)
        _move(write, action)
        if write.state is JobState.PARKED:
            write.heard = operations.heard(ops)
        if write.state in ENDED or any(r.outcome in FINAL_OUTCOMES for r in receipts):
            write.checkpoint_format = settings.CHECKPOINT_FORMAT
            write.checkpoint = checkpoints.make(
                write.checkpoint_format,
                ops,
                state=write.state,
                direction=write.direction,
                pivot_sent=write.pivot_sent,
            )
        return write


def _handler(
    action: actions.Send | actions.Ask | actions.Bury, effect: saga.Effect
) -> tuple[calls.Kind, object]:
    match action:
        case actions.Ask():
            return "probe", effect.probe
        case actions.Bury():
            return "tombstone", effect.tombstone
        case _:
            return "call", action.step.handler_of(action.direction)


def _new_attempt(entry: Attempt) -> NewAttempt:
    return NewAttempt(
        entry.step, entry.direction, entry.n, entry.arguments or {}, entry.fingerprint
    )


def _move(write: Write, action: actions.Action) -> None:
    """Where the job goes with this write."""
    match action:
        case actions.Wait() if action is STAY:
            pass
        case actions.Wait() if action is GIVE_BACK:
            backward = write.direction is Direction.BACKWARD and write.lane == Lane.FORWARD
            write.state = JobState.WAITING if backward else JobState.QUEUED
            write.lane = Lane.COMPENSATION if backward else write.lane
        case actions.Wait(delay, lane):
            write.state, write.lane = JobState.WAITING, lane
            write.delay_seconds = max(0.0, delay.total_seconds())
        case actions.Finish(state):
            write.state = state
        case actions.Park(reason, operation, detail):
            write.state = JobState.PARKED
            write.parked_reason = reason
            write.parked_detail = ": ".join(filter(None, (operation, detail)))[:2_000]
        case _:
            assert not isinstance(action, actions.Record | actions.TurnBack), (
                "these are planned away"
            )


def sighted(placed: calls.Placed, kind: str) -> sightings.NewSighting:
    """What a call or a probe brought, as a sighting."""
    name, found = evidence.of(placed.outcome or outcomes.Unknown("deadline"))
    if placed.outcome is None:  # it is given up, and may yet come back
        found["abandoned"] = True
    if placed.asked_at is not None and placed.kind != "call":
        found["asked_at"] = placed.asked_at.isoformat()
    return sightings.NewSighting(
        placed.job_id, placed.step, placed.direction, placed.call.n, kind, name, found, placed.fence
    )


def unheard(held: Held, receipt: NewReceipt) -> sightings.NewSighting:
    """A receipt that came under an old fence, as a sighting for whoever owns the job now."""
    return sightings.NewSighting(
        held.id,
        receipt.step,
        receipt.direction,
        receipt.n,
        "late",
        str(receipt.outcome),
        dict(receipt.evidence),
        held.fence,
    )


def count(held: Held, write: Write) -> None:
    """Metrics and logs of a stored write."""
    for receipt in write.receipts:
        labels = (receipt.step, receipt.direction, receipt.outcome)
        telemetry.operations.labels(*labels).inc()
        fee = receipt.evidence.get("cost", {})
        minor = fee.get("amount_minor")  # text where too large; and no counter goes down
        if isinstance(minor, int) and minor > 0:
            telemetry.cost.labels(receipt.step, fee["currency"]).inc(minor)
    if write.state in ENDED:
        telemetry.emit("job.settled", level="debug", job=str(held.id), state=str(write.state))
    elif write.state is JobState.PARKED:
        telemetry.emit("job.parked", level="error", job=str(held.id), reason=write.parked_reason)

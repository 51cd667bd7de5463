"""Planted bugs: mutations of the system, each with the invariant that must catch it. They show that the oracle sees.

Each is a change made from outside for the length of a block; production code knows nothing of them. Where the database has
a guard of its own against the mistake, the mutation takes that guard away too: what is tried is the oracle. MORE are about
doubt: what counts as proof that an operation has not happened, and what a person is told.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction

from ledger import (
    actions,
    calls,
    doubt,
    holding,
    journal,
    leases,
    local_batches,
    operations,
    outcomes,
    patience,
    planner,
    reconcile,
    retention,
    saga,
    sql,
    submission,
    turns,
)
from ledger.journal import Write, Written
from ledger.states import JobState


@dataclass(frozen=True, slots=True)
class Planted:
    """A mutation, and the invariant named for it."""

    invariant: str
    what: str
    mutate: Callable[[ExitStack], None]


PLANTED: dict[str, Planted] = {}
MORE: dict[str, Planted] = {}
Mutate = Callable[[ExitStack], None]


def planted(
    invariant: str, what: str, among: dict[str, Planted] = PLANTED
) -> Callable[[Mutate], Mutate]:
    def register(mutate: Mutate) -> Mutate:
        among[mutate.__name__] = Planted(invariant, what, mutate)
        return mutate

    return register


@contextmanager
def bug(name: str) -> Iterator[None]:
    """Within the block, the system has this bug."""
    with ExitStack() as undo:
        (PLANTED | MORE)[name].mutate(undo)
        yield


def put(undo: ExitStack, where: Any, name: str, what: object) -> Any:
    """Put something in an attribute's place for a while; returns what was there."""
    before = getattr(where, name)
    undo.callback(setattr, where, name, before)
    setattr(where, name, what)
    return before


def edit(undo: ExitStack, where: Any, name: str, *edits: tuple[str, str]) -> None:
    """Change a statement. AssertionError where it no longer has what the mutation changes."""
    statement: str = getattr(where, name)
    for old, new in edits:
        assert old in statement, f"{name} has no {old!r}: the mutation would change nothing"
        statement = statement.replace(old, new)
    put(undo, where, name, statement)


@planted("L2", "the guarded write asks for neither its fence nor its claim")
def drop_the_fence(undo: ExitStack) -> None:
    no_fence, no_claim = ("AND j.fence = g.fence ", ""), ("AND j.claim_token = g.token", "")
    stated = ("acting_fence = g.fence", "acting_fence = j.fence")
    edit(undo, journal, "SETTLE", no_fence, no_claim, stated)
    edit(undo, local_batches, "OURS", no_fence, no_claim)


@planted("L5", "leases are taken by the worker's clock, which is ten minutes fast")
def lease_by_worker_clock(undo: ExitStack) -> None:
    skewed = ("ledger_now() + make_interval", "ledger_now() + interval '10 min' + make_interval")
    edit(undo, leases, "CLAIM", skewed)
    edit(undo, leases, "RENEW", skewed)


@planted("C3", "the checkpoint is committed before the receipts that it speaks of")
def checkpoint_before_receipt(undo: ExitStack) -> None:
    def settle(writes: Sequence[Write], write_id: UUID | None = None) -> dict[UUID, Written]:
        ahead = [w for w in writes if w.checkpoint is not None and w.receipts]
        done = original([_only_checkpoint(w) for w in ahead], uuid4())
        moved = {id_ for id_, written in done.items() if written.result == "applied"}
        rest = [
            replace(w, seq=w.seq + 1, checkpoint=None) if w.job_id in moved else w for w in writes
        ]
        return dict(original(rest, write_id))

    original = put(undo, journal, "settle", settle)


@planted("R7", "a retry goes out under an operation id of its own")
def new_id_on_retry(undo: ExitStack) -> None:
    def call(self: holding.Held, action: Any, seconds: float) -> saga.Call:
        made: saga.Call = original(self, action, seconds)
        return replace(made, operation_id=f"{made.operation_id}.{made.n}") if made.n > 1 else made

    original = put(undo, holding.Held, "call", call)


@planted("R11", "a call that timed out is taken for refused")
def timeout_is_failure(undo: ExitStack) -> None:
    def hear(self: holding.Held, placed: calls.Placed) -> None:
        outcome = placed.outcome
        if outcome is None or (
            isinstance(outcome, outcomes.Unknown) and outcome.reason == "timeout"
        ):
            placed.outcome = outcomes.Refused("timeout")
        original(self, placed)

    original = put(undo, holding.Held, "hear", hear)


@planted("O5", "an operation in doubt is passed over on the way back")
def skip_the_unknown(undo: ExitStack) -> None:
    def is_proved_unsent(self: operations.Operation) -> bool:
        return bool(self.attempts) and self.final is None

    put(undo, operations.Operation, "is_proved_unsent", is_proved_unsent)


@planted("RING", "the ticket is published inside the transaction")
def publish_inside(undo: ExitStack) -> None:
    class AtOnce:
        atomic = staticmethod(transaction.atomic)

        @staticmethod
        def on_commit(what: Callable[[], None], **_options: object) -> None:
            what()

    put(undo, submission, "transaction", AtOnce)


@planted("C5", "the sweep does not see leases that have expired")
def sweep_is_blind(undo: ExitStack) -> None:
    put(undo, leases, "reclaim", lambda *_known: {})


@planted("D1", "retention takes jobs that have not ended")
def retention_takes_all(undo: ExitStack) -> None:
    old_enough = ("finished_at <", "created_at <")
    ended = "state IN ('confirmed', 'refused', 'compensated', 'closed')"
    edit(undo, retention, "PAST_TERM", old_enough, (ended, "true"))
    name = "ledger_retain(uuid[], interval)"
    (guard,) = sql.fetch("SELECT pg_get_functiondef(%s::regprocedure)", [name])[0]
    undo.callback(_define, guard)
    assert ended in guard, "the database's own guard is not what it was"
    _define(guard.replace(*old_enough).replace(ended, "true"))


@planted("S4", "the fingerprint of a submission leaves the amount out")
def hash_without_amount(undo: ExitStack) -> None:
    def fingerprint(name: str, request: Mapping[str, Any]) -> bytes:
        rest = {key: value for key, value in request.items() if key != "amount_minor"}
        found: bytes = original(name, rest)
        return found

    original = put(undo, submission, "_fingerprint", fingerprint)


@planted("R8", "an attempt was sent when it was committed, and its sender is done", MORE)
def sent_at_commit(undo: ExitStack) -> None:
    def sender(_self: object, attempt: operations.Attempt, _call: timedelta) -> tuple[Any, bool]:
        return attempt.at, True

    put(undo, operations.Operation, "_sender", sender)


@planted("R8", "a probe shows everything at once", MORE)
def no_probe_lag(undo: ExitStack) -> None:
    def weigh(asked: doubt.Asked, effect: saga.Effect, *args: Any, **known: Any) -> doubt.Doubt:
        found: doubt.Doubt = original(asked, replace(effect, probe_lag=timedelta()), *args, **known)
        return found

    original = put(undo, doubt, "weigh", weigh)


@planted("R8", "a thread that was given up is taken for one that came back", MORE)
def abandoned_is_back(undo: ExitStack) -> None:
    def learn(self: holding.Held, *call: Any, is_out: bool = False) -> None:
        original(self, *call)

    original = put(undo, holding.Held, "learn", learn)


@planted("R8", "a tombstone without an answer is taken for one that was accepted", MORE)
def unknown_tombstone_decides(undo: ExitStack) -> None:
    def deciding(self: operations.Operation) -> operations.Sighting | None:
        seen: operations.Sighting | None = original(self)
        lost = [s for s in self.sightings if (s.kind, s.outcome) == ("tombstone", "unknown")]
        return replace(lost[0], outcome="refused") if lost and not (seen or self.final) else seen

    original = put(undo, operations.Operation, "deciding_sighting", deciding)


@planted("R8", "every sender is taken for done", MORE)
def senders_are_done(undo: ExitStack) -> None:
    def last(self: operations.Operation, call_seconds: float) -> tuple[Any, bool]:
        return original(self, call_seconds)[0], True

    original = put(undo, operations.Operation, "last_possible_send", last)


@planted("R8", "a probe counts from its answer, not from its question", MORE)
def asked_when_answered(undo: ExitStack) -> None:
    put(undo, doubt, "_asked_at", lambda probe: probe.at)


@planted("O5", "an undo that was refused is passed over", MORE)
def refused_undo_is_fine(undo: ExitStack) -> None:
    def undoing(ctx: Any, step: saga.Step) -> actions.Action | None:
        action: actions.Action | None = original(ctx, step)
        return None if isinstance(action, actions.Park) else action

    original = put(undo, planner, "_undo", undoing)


@planted("L7", "the reclaim sweep ends leases that live", MORE)
def reclaim_ends_live_leases(undo: ExitStack) -> None:
    def reclaim(limit: int, _only: Sequence[UUID] | None = None) -> dict[str, int]:
        ended: dict[str, int] = leases._end("true", {"limit": limit, "how": "lease_expired"})  # noqa: SLF001
        return ended

    put(undo, leases, "reclaim", reclaim)


@planted("S2", "a cancel is accepted, and nothing turns", MORE)
def cancel_only_says_so(undo: ExitStack) -> None:
    edit(undo, turns, "CANCEL", ("direction = 'backward', turned_by", "turned_by"))


@planted("V7", "no deadline turns a job back", MORE)
def deadlines_are_ignored(undo: ExitStack) -> None:
    put(undo, turns, "expire_deadlines", lambda *_known: 0)


@planted("O2", "a job is charged a cent more than was asked for", MORE)
def a_cent_more(undo: ExitStack) -> None:
    def claim(*args: Any, **kwargs: Any) -> list[leases.Claimed]:
        claimed: list[leases.Claimed] = original(*args, **kwargs)
        return [replace(c, input=_a_cent_more(c.input)) for c in claimed]

    original = put(undo, leases, "claim", claim)


@planted("R5", "evidence that comes after a job was given up is not looked at", MORE)
def reconcile_is_blind(undo: ExitStack) -> None:
    put(undo, reconcile, "judge", lambda *_known: 0)


@planted("G4", "whatever is in doubt is left to a person", MORE)
def doubt_always_parks(undo: ExitStack) -> None:
    blocked = doubt.Decision(doubt.Verdict.BLOCKED, why="it is in doubt")
    put(undo, doubt, "decide", lambda _known: blocked)


@planted("R10", "no attempt uses the budget up", MORE)
def no_budget(undo: ExitStack) -> None:
    put(undo, operations.Operation, "budget_used", lambda _self: 0)


@planted("V1", "the wait before another attempt is nearly an hour", MORE)
def an_hour_of_backoff(undo: ExitStack) -> None:
    put(undo, patience, "_backoff", lambda *_known: timedelta(minutes=55))


def _a_cent_more(request: Mapping[str, Any]) -> dict[str, Any]:
    return {**request, "amount_minor": request["amount_minor"] + 1}


def _only_checkpoint(write: Write) -> Write:
    """The job stays where it is, and says how far it has come."""
    stays = replace(write, receipts=[], attempts=[], direction=write.knows)
    return replace(stays, state=JobState.RUNNING, delay_seconds=0.0, parked_reason="")


def _define(function: str) -> None:
    """As the owner, for whom the connection steps out of the worker's role."""
    sql.fetch("SET ROLE none")
    sql.fetch(function.replace("%", "%%"))
    sql.fetch("SET ROLE amends_worker")

"""Planted bugs: mutations of the system, each with the invariant that must catch it. They show that the oracle sees.

Each is a change made from outside for the length of a block; production code knows nothing of them. Where the database has
a guard of its own against the mistake, the mutation takes that guard away too: what is tried is the oracle.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction

from ledger import (
    calls,
    holding,
    journal,
    leases,
    local_batches,
    operations,
    outcomes,
    retention,
    saga,
    sql,
    submission,
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


def planted(
    invariant: str, what: str
) -> Callable[[Callable[[ExitStack], None]], Callable[[ExitStack], None]]:
    def register(mutate: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
        PLANTED[mutate.__name__] = Planted(invariant, what, mutate)
        return mutate

    return register


@contextmanager
def bug(name: str) -> Iterator[None]:
    """Within the block, the system has this bug."""
    with ExitStack() as undo:
        PLANTED[name].mutate(undo)
        yield


def _put(undo: ExitStack, where: Any, name: str, what: object) -> Any:
    """Put something in an attribute's place for a while; returns what was there."""
    before = getattr(where, name)
    undo.callback(setattr, where, name, before)
    setattr(where, name, what)
    return before


def _edit(undo: ExitStack, where: Any, name: str, *edits: tuple[str, str]) -> None:
    """Change a statement. AssertionError where it no longer has what the mutation changes."""
    statement: str = getattr(where, name)
    for old, new in edits:
        assert old in statement, f"{name} has no {old!r}: the mutation would change nothing"
        statement = statement.replace(old, new)
    _put(undo, where, name, statement)


@planted("L2", "the guarded write does not ask for its fence")
def drop_the_fence(undo: ExitStack) -> None:
    no_fence = ("AND j.fence = g.fence ", "")
    stated = ("acting_fence = g.fence", "acting_fence = j.fence")
    _edit(undo, journal, "SETTLE", no_fence, stated)
    _edit(undo, local_batches, "OURS", no_fence)


@planted("L5", "leases are taken by the worker's clock, which is ten minutes fast")
def lease_by_worker_clock(undo: ExitStack) -> None:
    skewed = ("ledger_now() + make_interval", "ledger_now() + interval '10 min' + make_interval")
    _edit(undo, leases, "CLAIM", skewed)
    _edit(undo, leases, "RENEW", skewed)


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

    original = _put(undo, journal, "settle", settle)


@planted("R7", "a retry goes out under an operation id of its own")
def new_id_on_retry(undo: ExitStack) -> None:
    def call(self: holding.Held, action: Any, seconds: float) -> saga.Call:
        made: saga.Call = original(self, action, seconds)
        return replace(made, operation_id=f"{made.operation_id}.{made.n}") if made.n > 1 else made

    original = _put(undo, holding.Held, "call", call)


@planted("R11", "a call that timed out is taken for refused")
def timeout_is_failure(undo: ExitStack) -> None:
    def hear(self: holding.Held, placed: calls.Placed) -> None:
        outcome = placed.outcome
        if outcome is None or (
            isinstance(outcome, outcomes.Unknown) and outcome.reason == "timeout"
        ):
            placed.outcome = outcomes.Refused("timeout")
        original(self, placed)

    original = _put(undo, holding.Held, "hear", hear)


@planted("O5", "an operation in doubt is passed over on the way back")
def skip_the_unknown(undo: ExitStack) -> None:
    def is_proved_unsent(self: operations.Operation) -> bool:
        return bool(self.attempts) and self.final is None

    _put(undo, operations.Operation, "is_proved_unsent", is_proved_unsent)


@planted("RING", "the ticket is published inside the transaction")
def publish_inside(undo: ExitStack) -> None:
    class AtOnce:
        atomic = staticmethod(transaction.atomic)

        @staticmethod
        def on_commit(what: Callable[[], None], **_options: object) -> None:
            what()

    _put(undo, submission, "transaction", AtOnce)


@planted("C5", "the sweep does not see leases that have expired")
def sweep_is_blind(undo: ExitStack) -> None:
    def reclaim(_limit: int) -> dict[str, int]:
        return {}

    _put(undo, leases, "reclaim", reclaim)


@planted("D1", "retention takes jobs that have not ended")
def retention_takes_all(undo: ExitStack) -> None:
    old_enough = ("finished_at < ledger_now()", "created_at < ledger_now()")
    ended = "state IN ('confirmed', 'refused', 'compensated', 'closed')"
    _edit(undo, retention, "PAST_TERM", old_enough, (ended, "true"))
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

    original = _put(undo, submission, "_fingerprint", fingerprint)


def _only_checkpoint(write: Write) -> Write:
    """The job stays where it is, and says how far it has come."""
    stays = replace(write, receipts=[], attempts=[], direction=write.knows)
    return replace(stays, state=JobState.RUNNING, delay_seconds=0.0, parked_reason="")


def _define(function: str) -> None:
    """As the owner, for whom the connection steps out of the worker's role."""
    sql.fetch("SET ROLE none")
    sql.fetch(function.replace("%", "%%"))
    sql.fetch("SET ROLE amends_worker")

"""LOCAL steps: many in one transaction, their rows locked first and in one order; attempt, receipt and effect together.

A batch locks its jobs by id and drops those whose fence, seq or direction moved; then all declared rows once, kind by
kind and key by key, under a lock timeout of a tenth of the lease; then each handler runs in a savepoint. A handler that
raises is rolled back and is `not_sent`. A lock timeout or a deadlock halves the batch and repeats: it never fails a step.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psycopg
from django.conf import settings
from django.db import Error, transaction

from ledger import crashpoints, journal, outcomes, planner, saga, sql, telemetry
from ledger.holding import Held
from ledger.journal import Write, Written

BATCH = 32
Settled = tuple[Held, Write, Written]

OURS = """
SELECT g.id FROM (
    SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[], %s::text[]) AS g(id, fence, seq, direction) ORDER BY id) g
CROSS JOIN LATERAL (SELECT FROM ledger_job j WHERE j.id = g.id AND j.fence = g.fence AND j.seq = g.seq
    AND j.direction = g.direction AND j.state = 'running' FOR NO KEY UPDATE) j
"""


class _NotConfirmed(Exception):
    """Carries an outcome out of a savepoint, so that the handler's rows are rolled back with it."""

    def __init__(self, outcome: outcomes.Outcome) -> None:
        self.outcome = outcome
        super().__init__(type(outcome).__name__)


def run(ready: Sequence[Held], deadline: float, *, leaving: bool) -> list[Settled]:
    """Run the LOCAL steps that these jobs are at. What could not run before the deadline is left for the next turn."""
    settled: list[Settled] = []
    todo = [list(ready[i : i + BATCH]) for i in range(0, len(ready), BATCH)]
    while todo and time.monotonic() < deadline:
        batch = todo.pop(0)
        planned = [(held, held.next) for held in batch]
        try:
            settled += _commit(batch, leaving=leaving)
        except (Error, psycopg.Error, UnicodeError) as error:
            _forget(planned)
            todo[:0] = _after(batch, error)
    return settled


def _after(batch: list[Held], error: Exception) -> list[list[Held]]:
    """Smaller batches after trouble; a job that fails alone for a row's sake will park."""
    asked = sql.trouble(error)
    telemetry.emit(
        "local.repeated",
        level="warning",
        sqlstate=sql.state_of(error),
        count=len(batch),
        reason=str(asked),
    )
    if asked is sql.Trouble.OTHER:
        raise error
    if asked is sql.Trouble.RECONNECT:
        sql.replace_connection()
        return [batch]
    if len(batch) > 1:
        half = len(batch) // 2
        return [batch[:half], batch[half:]]
    if asked is sql.Trouble.ROW:
        batch[0].forget_unwritable(f"{sql.state_of(error)} {sql.constraint_of(error)}".strip())
        return []
    return [batch]


def _commit(batch: list[Held], *, leaving: bool) -> list[Settled]:
    crashpoints.reach("local.before")
    with transaction.atomic(durable=True):
        sql.fetch(f"SET LOCAL lock_timeout = '{int(settings.LEASE_SECONDS * 100)}ms'")
        ours = _lock_jobs(batch)
        _lock_rows(ours)
        writes: dict[Any, tuple[Held, Write]] = {}
        for held in ours:
            action = held.next
            assert isinstance(action, planner.RunLocal), "only a planned LOCAL step runs here"
            held.learn_local(action, _handle(held, action))
            writes[held.id] = (held, held.decide(leaving=leaving))
        crashpoints.reach("local.after_handlers")
        written = journal.settle([write for _, write in writes.values()])
        assert all(w.result == "applied" for w in written.values()), "locked jobs cannot be stale"
    crashpoints.reach("local.after")
    for held in batch:
        if held.id not in writes:
            held.next = None  # turned, or no longer ours: the next renewal tells which
    return [(held, write, written[held.id]) for held, write in writes.values()]


def _lock_jobs(batch: list[Held]) -> list[Held]:
    rows = sql.fetch(
        OURS,
        [
            [h.id for h in batch],
            [h.fence for h in batch],
            [h.seq for h in batch],
            [h.direction.value for h in batch],
        ],
    )
    ours = {row[0] for row in rows}
    return [held for held in batch if held.id in ours]


def _lock_rows(batch: list[Held]) -> None:
    kinds: dict[str, tuple[Callable[[Sequence[tuple[Any, ...]]], None], set[tuple[Any, ...]]]] = {}
    for held in batch:
        action = held.next
        assert isinstance(action, planner.RunLocal), "only a planned LOCAL step runs here"
        if (rows := action.step.rows) is not None:
            kinds.setdefault(rows.name, (rows.lock, set()))[1].update(_keys(rows, action))
    for name in sorted(kinds):
        lock, keys = kinds[name]
        lock(sorted(keys))


def _keys(rows: saga.Rows, action: planner.RunLocal) -> Iterable[tuple[Any, ...]]:
    return rows.keys(action.arguments)


def _handle(held: Held, action: planner.RunLocal) -> outcomes.Outcome:
    handler = action.step.handler_of(action.direction)
    assert callable(handler), "the planner runs only what has a handler"
    call = held.call(action, settings.LEASE_SECONDS / 10)
    try:
        with transaction.atomic():
            outcome = handler(call)
            if not isinstance(outcome, outcomes.Confirmed):
                raise _NotConfirmed(outcome)  # noqa: TRY301  rolls the savepoint back
            return outcome
    except _NotConfirmed as undone:
        return undone.outcome
    except (outcomes.Refused, outcomes.NotSent, outcomes.Throttled, outcomes.Unknown) as raised:
        return raised
    except Exception as error:
        if sql.trouble(error) in (sql.Trouble.REPEAT, sql.Trouble.RECONNECT):
            raise
        telemetry.emit(
            "local.failed", level="error", step=action.step.name, error_class=type(error).__name__
        )
        return outcomes.NotSent(type(error).__name__)


def _forget(planned: list[tuple[Held, planner.Action | None]]) -> None:
    """The transaction was rolled back: each job is again where it was before its handler ran."""
    for held, action in planned:
        held.forget()
        held.next = action

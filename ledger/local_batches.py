"""LOCAL steps: many in one transaction, their rows locked first and in one order; attempt, receipt and effect together.

A batch locks its jobs by id and drops those whose fence, seq or direction moved; then all declared rows once, kind by
kind and key by key, under a lock timeout of a tenth of the lease; then each handler runs in a savepoint. A handler that
raises is rolled back and is `not_sent`. A lock timeout or a deadlock halves the batch and repeats: it never fails a step.
A statement that is too slow sends each job on alone, after all others; three times too slow, a job's handler has failed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import psycopg
from django.conf import settings
from django.db import Error, transaction

from ledger import actions, clock, crashpoints, journal, outcomes, permits, sql, telemetry
from ledger.holding import Held
from ledger.journal import Write, Written

BATCH = 32
TIMEOUTS_MAX = 3
TIMED_OUT = "57014"
Settled = tuple[Held, Write, Written]

OURS = """
SELECT g.id FROM (
    SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::uuid[], %s::bigint[], %s::text[])
        AS g(id, fence, token, seq, direction) ORDER BY id) g
CROSS JOIN LATERAL (SELECT FROM ledger_job j WHERE j.id = g.id AND j.fence = g.fence AND j.claim_token = g.token
    AND j.seq = g.seq AND j.direction = g.direction AND j.state = 'running' FOR NO KEY UPDATE) j
"""


class _NotConfirmed(Exception):
    """Carries an outcome out of a savepoint, so that the handler's rows are rolled back with it."""

    def __init__(self, outcome: outcomes.Outcome) -> None:
        self.outcome = outcome
        super().__init__(type(outcome).__name__)


def run(ready: Sequence[Held], deadline: float, *, leaving: bool) -> list[Settled]:
    """Run the LOCAL steps that these jobs are at. What could not run before the deadline is left for the next turn."""
    settled: list[Settled] = []
    todo = _batches(ready)
    while todo and clock.monotonic() < deadline:
        batch = todo.pop(0)
        try:
            settled += batch.commit(leaving=leaving)
        except (Error, psycopg.Error, UnicodeError) as error:
            found = batch.recover(error, deadline)
            settled += found
            # Behind the others: whoever waits for a lock holds up nobody else.
            todo += batch.again(error, {held.id for held, _, _ in found})
            if sql.trouble(error) is not sql.Trouble.ROW:
                clock.pause(sql.PAUSE_SECONDS)  # a server in trouble is not asked again at once
    return settled


def _batches(ready: Sequence[Held]) -> list["_Batch"]:
    """Whoever was too slow before runs alone and last: it holds up nobody, again and again."""
    slow = sorted((h for h in ready if h.timeouts), key=lambda h: h.timeouts)
    quick = [h for h in ready if not h.timeouts]
    parts = [quick[i : i + BATCH] for i in range(0, len(quick), BATCH)]
    return [*map(_Batch, parts), *map(_alone, slow)]


class _Batch:
    """Jobs whose LOCAL steps commit together, and what they were about to write: a reply to that commit may be lost."""

    def __init__(
        self, jobs: Sequence[Held], failed: Mapping[UUID, outcomes.NotSent] | None = None
    ) -> None:
        self._jobs = list(jobs)
        self._failed = dict(failed or {})  # these are not run: what became of them is known
        self._planned = {held.id: held.next for held in jobs}
        self._writes: dict[UUID, Write] = {}
        self._write_id = uuid4()

    def commit(self, *, leaving: bool) -> list[Settled]:
        crashpoints.reach("local.before")
        with transaction.atomic(durable=True):
            sql.fetch(_limits())
            ours = _lock_jobs(self._jobs)
            failed = self._failed | _lock_rows([h for h in ours if h.id not in self._failed])
            for held in ours:
                action = held.next
                assert isinstance(action, actions.RunLocal), "only a planned LOCAL step runs here"
                held.learn_local(action, failed.get(held.id) or _handle(held, action))
                self._writes[held.id] = held.decide(leaving=leaving)
            decided = permits.hold_back([(held, self._writes[held.id]) for held in ours])
            self._writes = {held.id: write for held, write in decided}
            crashpoints.reach("local.after_handlers")
            written = journal.settle(list(self._writes.values()), self._write_id)
            assert all(w.result == "applied" for w in written.values()), "locked jobs are not stale"
        crashpoints.reach("local.after")
        for held in self._jobs:
            held.timeouts = 0
            if held.id not in self._writes:
                held.next = None  # turned, or no longer ours: the next renewal tells which
        return self._settled(written)

    def recover(self, error: Exception, deadline: float) -> list[Settled]:
        """After a lost connection: what our write id is on was committed, and only the reply to it was lost."""
        if sql.trouble(error) is not sql.Trouble.RECONNECT:
            return []
        sql.replace_connection()
        writes = list(self._writes.values())
        stored = sql.persist(lambda: journal.read_back(writes, self._write_id), deadline)
        return self._settled({job: w for job, w in stored.items() if w.result == "repeated"})

    def again(self, error: Exception, stored: set[UUID]) -> list["_Batch"]:
        """Smaller batches of what was rolled back; a job that fails alone for a row's sake will park."""
        left = [held for held in self._jobs if held.id not in stored]
        for held in left:
            held.forget()
            held.next = self._planned[held.id]
        asked = sql.trouble(error)
        telemetry.emit(
            "local.repeated",
            level="warning",
            sqlstate=sql.state_of(error),
            count=len(left),
            reason=str(asked),
        )
        if asked is sql.Trouble.OTHER:
            raise error
        if asked is sql.Trouble.ROW and len(left) == 1:
            left[0].forget_unwritable(f"{sql.state_of(error)} {sql.constraint_of(error)}".strip())
            return []
        if sql.state_of(error) == TIMED_OUT:
            for held in left:  # of many, nobody knows yet which it was
                held.timeouts = held.timeouts + 1 if len(left) == 1 else max(held.timeouts, 1)
            return [_alone(held) for held in left]
        half = len(left) if asked is sql.Trouble.RECONNECT else (len(left) + 1) // 2
        return [_Batch(part) for part in (left[:half], left[half:]) if part]

    def _settled(self, written: Mapping[UUID, Written]) -> list[Settled]:
        return [
            (held, self._writes[held.id], written[held.id])
            for held in self._jobs
            if held.id in written
        ]


def _limits() -> str:
    """A batch waits for a lock for a tenth of the lease, and for a statement half as long as a turn may take."""
    statement = min(settings.STATEMENT_SECONDS, settings.LEASE_SECONDS / 6)
    lock = settings.LEASE_SECONDS / 10
    return f"SET LOCAL lock_timeout = {int(lock * 1000)}; SET LOCAL statement_timeout = {int(statement * 1000)}"


def _alone(held: Held) -> _Batch:
    """A batch of one; where the handler was too slow too often, it is not asked again, and has failed."""
    if held.timeouts < TIMEOUTS_MAX:
        return _Batch([held])
    action = held.next
    assert isinstance(action, actions.RunLocal), "only a planned LOCAL step runs here"
    return _Batch([held], {held.id: _failed(action, "statement_timeout")})


def _lock_jobs(batch: list[Held]) -> list[Held]:
    rows = sql.fetch(
        OURS,
        [
            [h.id for h in batch],
            [h.fence for h in batch],
            [h.token for h in batch],
            [h.seq for h in batch],
            [h.direction.value for h in batch],
        ],
    )
    ours = {row[0] for row in rows}
    return [held for held in batch if held.id in ours]


def _lock_rows(batch: list[Held]) -> dict[UUID, outcomes.NotSent]:
    """Lock what these jobs declare. A job whose rows cannot be named is not run: what became of it comes back."""
    kinds: dict[str, tuple[Callable[[Sequence[tuple[Any, ...]]], None], set[tuple[Any, ...]]]] = {}
    failed: dict[UUID, outcomes.NotSent] = {}
    for held in batch:
        action = held.next
        assert isinstance(action, actions.RunLocal), "only a planned LOCAL step runs here"
        if (rows := action.step.rows) is None:
            continue
        try:
            keys = set(rows.keys(action.arguments))
        except Exception as error:  # noqa: BLE001  a definition's own code fails its job, never the batch
            failed[held.id] = _failed(action, type(error).__name__)
        else:
            kinds.setdefault(rows.name, (rows.lock, set()))[1].update(keys)
    for name in sorted(kinds):
        lock, keys = kinds[name]
        lock(sorted(keys))
    return failed


def _handle(held: Held, action: actions.RunLocal) -> outcomes.Outcome:
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
        returned: object = (
            undone.outcome
        )  # handlers are other people's code: their types are not proof
        return returned if isinstance(returned, outcomes.Outcome) else _failed(action, "no_outcome")
    except (outcomes.Refused, outcomes.NotSent, outcomes.Throttled, outcomes.Unknown) as raised:
        return raised
    except Exception as error:
        if sql.trouble(error) in (sql.Trouble.REPEAT, sql.Trouble.RECONNECT):
            raise
        return _failed(action, type(error).__name__)


def _failed(action: actions.RunLocal, reason: str) -> outcomes.NotSent:
    telemetry.emit("local.failed", level="error", step=action.step.name, error_class=reason)
    return outcomes.NotSent(reason)

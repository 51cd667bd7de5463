"""The sandbox's books in SQLite: every request seen, every effect applied, every key answered,
every tombstone.

Invariant: an answer leaves only after `committed()`, so that no answered effect is lost with the
process (WAL, written to the file by the commit; `synchronous=OFF` gives up only what a power cut
would take). Commits are shared: whoever waits within the same two milliseconds waits for the same
one. The effects table counts what was *done*: it has no unique constraint on the operation id,
because its purpose is to show a doubled effect, not to prevent it.
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bookings.sandbox import schema

COMMIT_SECONDS = 0.002
PAGE = 10_000
DOUBLED = "SELECT operation_id FROM effects GROUP BY operation_id HAVING count(*) > 1"


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The first answer given under a key, and what was asked for with it."""

    kind: str
    meaning: str
    status: int
    body: dict[str, Any]


class Books:
    """One connection, used by the event loop's thread alone; reads see what is written but not
    yet committed.
    """

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.executescript(schema.SCHEMA)
        self._waiting: list[asyncio.Future[None]] = []
        self.key_lifetime_seconds: float | None = None

    # --- commits ---

    async def committed(self) -> None:
        """Return once everything written so far is in the file."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_later(COMMIT_SECONDS, self.flush)
        self._waiting.append(waiting)
        await waiting

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        failure: sqlite3.Error | None = None
        try:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            failure = error  # told to every waiter: each closes its connection without an answer
        for future in waiting:
            if future.done():
                continue
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)

    def close(self) -> None:
        self.flush()
        self._connection.close()

    # --- writes ---

    def receive(self, *, operation: str, kind: str, subject: str, body: str, action: str) -> int:
        """Note a request as it comes in, before anything is done about it; `body` is its
        fingerprint.
        """
        return self._write(
            "INSERT INTO requests (operation_id, kind, subject, fingerprint, received_at, action)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (operation, kind, subject, body, time.time(), action),
        )

    def answer(self, n: int, status: int) -> None:
        self._write("UPDATE requests SET status = ? WHERE n = ?", (status, n))

    def apply(self, kind: str, resource: Mapping[str, Any]) -> None:
        """Write down an effect. Nothing here asks whether the operation had one before."""
        self._write(
            "INSERT INTO effects (id, operation_id, kind, subject, amount_minor, currency, capture,"
            " applied_at, resource) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                resource["id"],
                resource["operation_id"],
                kind,
                resource["subject"],
                resource.get("amount_minor"),
                resource.get("currency"),
                resource.get("capture"),
                time.time(),
                json.dumps(resource),
            ),
        )

    def store_answer(self, operation: str, *, subject: str, answer: StoredAnswer) -> None:
        self._write(
            "INSERT OR REPLACE INTO keys (operation_id, kind, subject, meaning, status, answer,"
            " stored_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                operation,
                answer.kind,
                subject,
                answer.meaning,
                answer.status,
                json.dumps(answer.body),
                time.time(),
            ),
        )

    def bury(self, operation: str) -> None:
        self._write(
            "INSERT OR IGNORE INTO tombstones (operation_id, made_at) VALUES (?, ?)",
            (operation, time.time()),
        )

    def forget_keys(self, older_than_seconds: float) -> int:
        """Forget stored answers of that age; the effects they speak of stay. Returns how many."""
        before = time.time() - older_than_seconds
        found = self._row("SELECT count(*) FROM keys WHERE stored_at <= ?", (before,))
        self._write("DELETE FROM keys WHERE stored_at <= ?", (before,))
        return int(found[0]) if found else 0

    # --- reads ---

    def stored_answer(self, operation: str) -> StoredAnswer | None:
        horizon = 0.0
        if self.key_lifetime_seconds is not None:
            horizon = time.time() - self.key_lifetime_seconds
        row = self._row(
            "SELECT kind, meaning, status, answer FROM keys"
            " WHERE operation_id = ? AND stored_at > ?",
            (operation, horizon),
        )
        return None if row is None else StoredAnswer(row[0], row[1], row[2], json.loads(row[3]))

    def is_buried(self, operation: str) -> bool:
        return bool(self._row("SELECT 1 FROM tombstones WHERE operation_id = ?", (operation,)))

    def effect_of(self, operation: str) -> tuple[str, dict[str, Any]] | None:
        """The first effect of an operation: its kind and its resource."""
        row = self._row(
            "SELECT kind, resource FROM effects WHERE operation_id = ? ORDER BY n LIMIT 1",
            (operation,),
        )
        return None if row is None else (row[0], json.loads(row[1]))

    def capture(self, capture_id: str) -> dict[str, Any] | None:
        row = self._row(
            "SELECT resource FROM effects WHERE id = ? AND kind = 'capture'", (capture_id,)
        )
        return None if row is None else dict(json.loads(row[0]))

    def refunds_of(self, capture_id: str) -> list[dict[str, Any]]:
        rows = self._connection.execute(
            "SELECT resource FROM effects WHERE capture = ? ORDER BY n", (capture_id,)
        )
        return [dict(json.loads(row[0])) for row in rows]

    def subject_of(self, operation: str) -> str:
        """Whom an operation is for, as far as the books know: a probe names the operation only."""
        row = self._row(
            "SELECT subject FROM requests WHERE operation_id = ? AND subject <> '' LIMIT 1",
            (operation,),
        )
        return "" if row is None else str(row[0])

    def requests(self, *, operation: str, subject: str, after: int) -> list[dict[str, Any]]:
        return self._page("requests", schema.REQUEST_COLUMNS, operation, subject, after)

    def effects(self, *, operation: str, subject: str, after: int) -> list[dict[str, Any]]:
        rows = self._page("effects", schema.EFFECT_COLUMNS, operation, subject, after)
        return [{**row, "resource": json.loads(row["resource"])} for row in rows]

    def summary(self) -> dict[str, Any]:
        """The whole of the books in a few numbers; `operations` counts operation ids with an
        effect.
        """
        totals: dict[str, dict[str, int]] = {"capture": {}, "refund": {}}
        counts = {"capture": 0, "refund": 0, "ticket": 0}
        for kind, currency, count, amount in self._connection.execute(
            "SELECT kind, currency, count(*), sum(amount_minor) FROM effects"
            " GROUP BY kind, currency"
        ):
            counts[kind] += count
            if currency is not None:
                totals[kind][currency] = amount
        captured, refunded = totals["capture"], totals["refund"]
        return {
            "requests": self._count("SELECT count(*) FROM requests"),
            "captures": {"count": counts["capture"], "amount_minor": captured},
            "refunds": {"count": counts["refund"], "amount_minor": refunded},
            "tickets": counts["ticket"],
            "net_minor": {
                currency: captured.get(currency, 0) - refunded.get(currency, 0)
                for currency in sorted(captured.keys() | refunded.keys())
            },
            "doubled": self._count(f"SELECT count(*) FROM ({DOUBLED})"),  # noqa: S608  a constant
            "operations": self._count("SELECT count(DISTINCT operation_id) FROM effects"),
        }

    def _page(
        self, table: str, columns: str, operation: str, subject: str, after: int
    ) -> list[dict[str, Any]]:
        # Table and columns are constants of this module; only the values come from outside.
        where = ["n > ?"]
        values: list[Any] = [after]
        for column, value in (("operation_id", operation), ("subject", subject)):
            if value:
                where.append(f"{column} = ?")
                values.append(value)
        sql = f"SELECT {columns} FROM {table} WHERE {' AND '.join(where)} ORDER BY n LIMIT {PAGE}"  # noqa: S608
        return [dict(row) for row in self._connection.execute(sql, values)]

    def _count(self, sql: str) -> int:
        row = self._row(sql, ())
        return 0 if row is None else int(row[0])

    def _row(self, sql: str, values: tuple[Any, ...]) -> sqlite3.Row | None:
        found: sqlite3.Row | None = self._connection.execute(sql, values).fetchone()
        return found

    def _write(self, sql: str, values: tuple[Any, ...]) -> int:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")
        return self._connection.execute(sql, values).lastrowid or 0

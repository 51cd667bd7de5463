"""An asynchronous standby of our own PostgreSQL, which a drill cuts off and then promotes.

The standby streams through a proxy of ours, so that it can be cut off as a network does it: what commits from then on is
acknowledged and never arrives. Kept here: the promoted server takes over the address, so that whoever knows only that goes
on as behind an address that moves; and the lost primary is never started again.
"""

import signal
import subprocess
from pathlib import Path
from typing import Any, Self

import psycopg

from config import embedded, processes, wheels
from recovery import proxy

DATABASE = "DATABASE_URL"
CATCH_UP_SECONDS = 60.0
PROMOTE_SECONDS = 30
STREAMS = "SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'"
NOW_AT = "SELECT pg_current_wal_flush_lsn()::text"
HAS_REPLAYED = "SELECT (pg_last_wal_replay_lsn() >= %s::pg_lsn)::int"


class Standby:
    """What `recovery.drills.place.Standby` asks for. Use as a context; the proxy goes with it, the servers do not."""

    def __init__(self, servers: embedded.Servers) -> None:
        self._servers = servers
        self._primary = servers.directory
        self._sockets = servers.directory / "standby"
        self._data = self._sockets / "data"
        self._line = proxy.Proxy(str(self._primary / embedded.SOCKET))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._line.__enter__()
        try:
            self._make()
        except BaseException:
            self._line.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self._line.__exit__()

    def cut_off(self) -> None:
        """It has all that is committed by now, and nothing of what comes."""
        at = _ask(self._primary, NOW_AT)
        self._await("the standby level with its primary", HAS_REPLAYED, at)
        self._line.mode("black_hole")

    def lose_primary(self) -> None:
        self._servers.halt(DATABASE, signal.SIGQUIT)

    def promote(self) -> None:
        """The standby is the primary now, at the old one's address."""
        assert self._process is not None, "promoted inside the block"
        if not _ask(self._sockets, "SELECT pg_promote(true, %s)", PROMOTE_SECONDS):
            raise wheels.EmbeddedError(f"the standby was not promoted in {PROMOTE_SECONDS} s")
        self._servers.take_over(self._process, self._data, self._sockets)

    def _make(self) -> None:
        wheels.make(self._sockets)
        source = f"host={proxy.HOST} port={self._line.port} user=postgres sslmode=disable"
        to = ("--pgdata", str(self._data), "--dbname", source, "--write-recovery-conf")
        self._servers.run("pg_basebackup", *to, "--checkpoint=fast", "--no-sync")
        self._process = self._servers.serve(self._data, self._sockets)
        self._await("the standby streaming", STREAMS)

    def _await(self, what: str, question: str, *params: Any) -> None:
        is_so = processes.Ending().wait_until(
            lambda: bool(_ask(self._sockets, question, *params)), CATCH_UP_SECONDS
        )
        if not is_so:
            raise wheels.EmbeddedError(f"{what}: not after {CATCH_UP_SECONDS:g} s")


def _ask(sockets: Path, question: str, *params: Any) -> Any:
    with psycopg.connect(embedded.address_of(sockets), autocommit=True) as connection:
        row = connection.execute(question, params or None).fetchone()
    assert row is not None, "each question has one answer"
    return row[0]

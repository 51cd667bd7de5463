"""What a running sandbox consists of: its books, its manners, the requests held back, and the
door.

Invariant: the door keeps its port. A closed one refuses connections, as a provider that is down
does, and opens again by itself; connections that are open already stay open, and so does the way
to /control for whoever has one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bookings.sandbox import misbehave, storage

BACKLOG = 1024
OnConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Held:
    """A request that is somewhere on its way: `go` lets it arrive, `done` says that it has."""

    def __init__(self) -> None:
        self.go, self.done = asyncio.Event(), asyncio.Event()


class Door:
    """The listening socket."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._server: asyncio.Server | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._on_connection: OnConnection | None = None

    async def open(self, on_connection: OnConnection | None = None) -> None:
        """Listen, unless it does; the first time takes the port that the system gives where none
        was named.
        """
        self._on_connection = on_connection or self._on_connection
        if self._server is not None or self._on_connection is None:
            return
        self._server = await asyncio.start_server(
            self._on_connection, self.host, self.port, backlog=BACKLOG
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self, seconds: float | None = None) -> None:
        """Refuse connections; for that many seconds, or for good."""
        if self._reopening is not None:
            self._reopening.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None
        if seconds is not None:
            self._reopening = asyncio.create_task(self._reopen(seconds))

    async def _reopen(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.open()


@dataclass(slots=True)
class State:
    books: storage.Books
    manners: misbehave.Manners
    door: Door
    held: set[Held] = field(default_factory=set)

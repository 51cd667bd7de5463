"""A TCP proxy that misbehaves on command: what lies between a process of ours and its database, broker or provider.

It listens on a free port of this machine, forwards to one target (an address, or the path of a unix socket), and its
owner changes how, at any time:

pass        forwards both ways
delay       the same, each piece so many seconds late
drop        resets every connection, new ones too
half_close  tells the client that nothing more comes, and goes on forwarding what the client sends
black_hole  accepts and swallows, both ways, and stays silent: a partition, as its two sides see it
refuse      resets every connection and listens no longer; the port stays its own

Kept here: whatever was asked of it, the end of its block leaves no thread, no connection and no port behind.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Self

MODES = ("pass", "delay", "drop", "half_close", "black_hole", "refuse")
HOST = "127.0.0.1"
CONNECTIONS_MAX = 512
PIECE = 65536
ASK_SECONDS = 10.0
CONNECT_SECONDS = 5.0
RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds: closing resets

Cut = Literal["", "before", "after"]
Cutter = Callable[[bytes], Cut]
Target = tuple[str, int] | str
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def never(_piece: bytes) -> Cut:
    return ""


@dataclass
class _How:
    """What the proxy does at this moment; its loop's alone."""

    target: Target
    cut: Cutter
    mode: str = "pass"
    seconds: float = 0.0


class Proxy:
    """A proxy in a thread of its own. `cut` sees each piece that a client sends and may ask for that connection's end:
    `before` the target gets the piece, or `after` the target has answered it, and the client never hears that answer.
    With `tls` clients speak TLS to it, and it speaks plainly to the target.
    """

    def __init__(
        self, target: Target, *, cut: Cutter = never, tls: ssl.SSLContext | None = None
    ) -> None:
        self.connections = 0  # accepted since the start
        self.port = 0
        self._how = _How(target, cut)
        self._tls = tls
        self._lines: dict[_Line, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._place = _listener(
            0
        )  # bound and never listening: keeps the port while nobody is served

    @property
    def open(self) -> int:
        """How many connections there are now."""
        return len(self._lines)

    def __enter__(self) -> Self:
        self.port = self._place.getsockname()[1]
        self._thread.start()
        try:
            self._ask(self._listen())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ask(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ASK_SECONDS)
        self._loop.close()
        self._place.close()

    def mode(self, name: str, seconds: float = 0.0) -> None:
        """From now on, for connections that are open too. Returns when it holds."""
        if name not in MODES:
            raise ValueError(f"no such mode: {name}")
        self._ask(self._switch(name, seconds))

    def _ask(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(ASK_SECONDS)

    async def _listen(self) -> None:
        if self._server is None:
            listener = _listener(self.port)
            self._server = await asyncio.start_server(
                self._accept, sock=listener, limit=PIECE, ssl=self._tls
            )

    async def _deafen(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _switch(self, name: str, seconds: float) -> None:
        self._how.mode, self._how.seconds = name, seconds
        for line in list(self._lines):
            # What a black hole swallowed is missing for good: such a connection is of no use to anybody.
            if name in ("drop", "refuse") or (line.swallowed and name != "black_hole"):
                line.reset()
            elif name == "half_close":
                line.half_close()
        await (self._deafen() if name == "refuse" else self._listen())

    async def _end(self) -> None:
        await self._deafen()
        tasks = list(self._lines.values())
        for line in list(self._lines):
            line.reset()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # one turn of the loop, in which the sockets are closed

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        line, task = _Line(self._how, (reader, writer)), asyncio.current_task()
        assert task is not None, "a connection is served by a task of the loop"
        self._lines[line] = task
        try:
            if self._how.mode == "drop" or len(self._lines) > CONNECTIONS_MAX:
                return
            await line.serve()
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # one of the two is gone, or the proxy ends: so is the other
        finally:
            line.reset()
            del self._lines[line]


class _Line:
    """One client's connection, and ours to the target for it."""

    def __init__(self, how: _How, client: Pair) -> None:
        self.swallowed = False
        self._how = how
        self._client = client
        self._is_halved = False
        self._server: Pair | None = None
        self._cuts_reply = False

    async def serve(self) -> None:
        reader, writer = self._client
        if self._how.mode == "black_hole":
            await self._swallow(reader)
            return
        self._server = await asyncio.wait_for(_connected(self._how.target), CONNECT_SECONDS)
        if self._how.mode == "half_close":
            self.half_close()
        answers, requests = self._server
        await asyncio.gather(self._requests(reader, requests), self._answers(answers, writer))

    def half_close(self) -> None:
        self._is_halved = True
        _end_of(self._client[1])

    def reset(self) -> None:
        for pair in (self._client, self._server):
            if pair is not None:
                _reset(pair[1])

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(PIECE):
            cut = self._how.cut(piece)
            if cut == "before":
                raise ConnectionResetError
            self._cuts_reply = cut == "after"
            await self._forward(piece, writer)
        _end_of(writer)

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(PIECE):
            if self._cuts_reply:
                raise ConnectionResetError
            if not self._is_halved:
                await self._forward(piece, writer)
        if self._how.mode != "black_hole":
            _end_of(writer)

    async def _forward(self, piece: bytes, writer: asyncio.StreamWriter) -> None:
        if self._how.mode == "delay":
            await asyncio.sleep(self._how.seconds)
        if self._how.mode == "black_hole":
            self.swallowed = True
        else:
            writer.write(piece)
            await writer.drain()

    async def _swallow(self, reader: asyncio.StreamReader) -> None:
        self.swallowed = True
        while await reader.read(PIECE):
            pass


def _listener(port: int) -> socket.socket:
    """Bound, so that a second one of ours can be bound beside it; only one that listens is given connections."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind((HOST, port))
    return found


async def _connected(target: Target) -> Pair:
    if isinstance(target, str):
        return await asyncio.open_unix_connection(target, limit=PIECE)
    return await asyncio.open_connection(*target, limit=PIECE)


def _end_of(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        if (sock := writer.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()

"""HTTP/1.1 with keep-alive over one asyncio connection: h11 decides what the bytes mean.

Invariant: whatever is put on the wire, whole or in part, is the encoding of one reply; a
connection on which anything but one whole reply was sent is never used again. Reads are limited
in time and bodies in size.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.utils import formatdate

import h11

from bookings.sandbox import processor

BODY_MAX = 64 * 1024
IDLE_SECONDS = 75.0
WRITE_SECONDS = 30.0
READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    key: str
    body: bytes


class TooLarge(Exception):
    """A request body above the limit."""


class Wire:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._h11 = h11.Connection(h11.SERVER)
        self.is_open = True

    async def requests(self) -> AsyncIterator[Request]:
        """Requests one after the other, until either side is done with the connection."""
        while self.is_open:
            request = await self._receive()
            if request is None:
                return
            yield request
            if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
                self._h11.start_next_cycle()
            else:
                return

    def encode(self, reply: processor.Reply) -> bytes:
        """The bytes of a whole reply."""
        payload = reply.payload()
        headers = [
            ("Content-Type", reply.content_type),
            ("Content-Length", str(len(payload))),
            ("Date", formatdate(usegmt=True)),
            *reply.headers.items(),
        ]
        head = h11.Response(status_code=reply.status, headers=headers)
        parts = (head, h11.Data(data=payload), h11.EndOfMessage())
        return b"".join(self._h11.send(part) or b"" for part in parts)

    async def write(self, data: bytes) -> None:
        if not self.is_open:
            return
        self._writer.write(data)
        async with asyncio.timeout(WRITE_SECONDS):
            await self._writer.drain()

    async def peer_gone(self, seconds: float) -> None:
        """Wait until the other side hangs up, at most that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while await self._reader.read(READ_BYTES):
                    pass

    def close(self) -> None:
        self.is_open = False
        self._writer.close()

    async def _receive(self) -> Request | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                await self._fill()
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY_MAX:
                    raise TooLarge
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request(head, bytes(body))
            else:
                return None

    async def _fill(self) -> None:
        if self._h11.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            self._writer.write(self._h11.send(go_on) or b"")
        async with asyncio.timeout(IDLE_SECONDS):
            self._h11.receive_data(await self._reader.read(READ_BYTES))


def _request(head: h11.Request, body: bytes) -> Request:
    keys = [value for name, value in head.headers if name == b"idempotency-key"]
    key = keys[0].decode("latin-1") if len(keys) == 1 else ""
    return Request(head.method.decode("ascii"), head.target.decode("ascii"), key, body)

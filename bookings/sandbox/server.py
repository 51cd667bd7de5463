"""The sandbox as a process: connections in, requests to the processor or to whatever a rule says,
orderly end.

The path of a request: `_serve` reads it, `_understand` turns it into an operation or a 400, it is
booked *before* anything is done about it, then waits out the latency and is answered honestly or
by the action of the first rule that fires. Invariant: every request that reaches /v1 has one row
in the books, with the status it was answered, if it was.
"""

import asyncio
import contextlib
import hashlib
import json
import signal
import sqlite3
import sys
from urllib.parse import unquote, urlsplit

import h11

from bookings.sandbox import actions, control, exchanges, misbehave, processor, state, storage, wire

KEY_MAX = 255
POSTED = {"/v1/captures": "capture", "/v1/refunds": "refund", "/v1/tickets": "ticket"}
NAMED = {("GET", "/v1/operations/"): "probe", ("POST", "/v1/tombstones/"): "tombstone"}
END_OF_CONNECTION = (
    *(ConnectionError, TimeoutError, h11.ProtocolError, wire.TooLarge),
    *(sqlite3.Error, misbehave.RuleError),
)


def run(*, host: str, port: int, store: str, seed: int = 0) -> None:
    """Serve until SIGTERM or SIGINT. Prints `{"port": N}` on a line of its own once it can be
    reached.
    """
    asyncio.run(_run(host, port, store, seed))


async def _run(host: str, port: int, store: str, seed: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    sandbox = Sandbox(
        state.State(storage.Books(store), misbehave.Manners(seed), state.Door(host, port))
    )
    await sandbox.open()
    sys.stdout.write(json.dumps({"port": sandbox.state.door.port}) + "\n")
    sys.stdout.flush()
    try:
        await stop.wait()
    finally:
        await sandbox.close()


class Sandbox:
    """All connections of one sandbox."""

    def __init__(self, contents: state.State) -> None:
        self.state = contents
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self.state.door.open(self._connected)

    async def close(self) -> None:
        """Hang up on everybody; what was written is kept."""
        await self.state.door.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self.state.books.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs each connection as a task"
        self._connections.add(task)
        line = wire.Wire(reader, writer)
        try:
            with contextlib.suppress(*END_OF_CONNECTION, asyncio.CancelledError):
                async for request in line.requests():
                    await self._serve(line, request)
        finally:
            self._connections.discard(task)
            line.close()

    async def _serve(self, line: wire.Wire, request: wire.Request) -> None:
        path = urlsplit(request.target).path
        if not path.startswith("/v1/"):
            self.state.books.flush()
            await line.write(line.encode(await control.serve(self.state, request)))
            return
        operation, refusal = _understand(self.state.books, request, path)
        rule, action = self._choose(operation, refusal)
        number = self.state.books.receive(
            operation=operation.operation_id,
            kind=operation.kind,
            subject=operation.subject,
            body=operation.fingerprint,
            action=action,
        )
        exchange = exchanges.Exchange(operation, number, self.state, line)
        await self._wait(operation)
        if refusal is not None:
            await exchange.answer(refusal)
        elif rule is not None:
            await actions.ACTIONS[rule.do](exchange, rule.params)
        else:
            await self._answer(exchange, action)

    def _choose(
        self, operation: processor.Operation, refusal: processor.Reply | None
    ) -> tuple[misbehave.Rule | None, str]:
        """The rule for this request, if any, and what the books call its treatment."""
        if refusal is not None:
            return None, ""
        if self.state.manners.is_down():
            return None, "down"
        rule = self.state.manners.choose(
            kind=operation.kind, subject=operation.subject, operation=operation.operation_id
        )
        return rule, "" if rule is None else rule.do

    async def _wait(self, operation: processor.Operation) -> None:
        seconds = self.state.manners.latency(operation.operation_id)
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def _answer(self, exchange: exchanges.Exchange, action: str) -> None:
        if action != "down":
            await exchange.answer(exchange.perform())
        elif self.state.manners.outage == "error":
            await exchange.answer(
                processor.problem(503, "unavailable", exchange.operation.operation_id)
            )
        else:
            await exchange.drop()


def _understand(
    books: storage.Books, request: wire.Request, path: str
) -> tuple[processor.Operation, processor.Reply | None]:
    """What is asked for, and the refusal where it cannot be read; unread requests are booked like
    all others.
    """
    fingerprint = hashlib.sha256(request.body).hexdigest()
    for (method, prefix), kind in NAMED.items():
        if request.method == method and path.startswith(prefix):
            identifier = unquote(path.removeprefix(prefix))
            subject = books.subject_of(identifier)
            return processor.Operation(kind, identifier, subject, fingerprint=fingerprint), None
    kind = POSTED.get(path, "") if request.method == "POST" else ""
    if not kind:
        nothing = processor.Operation("", request.key[:KEY_MAX], "", fingerprint=fingerprint)
        return nothing, processor.problem(404, "no_such_path")
    return _posted(kind, request, fingerprint)


def _posted(
    kind: str, request: wire.Request, fingerprint: str
) -> tuple[processor.Operation, processor.Reply | None]:
    key = request.key
    operation = processor.Operation(kind, key[:KEY_MAX], "", fingerprint=fingerprint)
    if not 0 < len(key) <= KEY_MAX:
        return operation, processor.problem(400, "idempotency_key_missing", operation.operation_id)
    try:
        operation = processor.read(kind, key, request.body)
        processor.check(operation)
    except (ValueError, RecursionError, processor.Invalid) as error:
        return operation, processor.problem(400, "invalid_request", key, detail=str(error))
    return operation, None

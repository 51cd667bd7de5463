"""The worker of the web process: what is answered before Django has seen a request, and how long a request may take.

The promise: what cannot be read as a request gets a problem document like everything else, and no byte of it is told back
or logged; and nobody keeps one of the few threads by sending slowly, or by not reading. A proxy in front that takes in
whole requests bears more.
"""

import contextlib
import time
import uuid
from http import HTTPStatus
from typing import Any, override

from gunicorn import util
from gunicorn.http import errors
from gunicorn.http.parser import RequestParser
from gunicorn.http.unreader import SocketUnreader
from gunicorn.workers.gthread import ThreadWorker

from ledger import telemetry

ARRIVAL_SECONDS = 10.0  # for a request to be here, head and body; and for a client to take each piece of its answer
LINGER_SECONDS = 0.5  # for a client to close, once it has all of its last answer


class TooSlow(errors.ParseException):  # type: ignore[misc]
    """The head of a request did not arrive in time."""


STATUSES: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (
        errors.InvalidResponseHeader,
        HTTPStatus.INTERNAL_SERVER_ERROR,
    ),  # ours, though a ParseException
    (errors.InvalidResponseHeaderName, HTTPStatus.INTERNAL_SERVER_ERROR),
    (TooSlow, HTTPStatus.REQUEST_TIMEOUT),
    (errors.LimitRequestLine, HTTPStatus.REQUEST_URI_TOO_LONG),
    (errors.LimitRequestHeaders, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
    (errors.ExpectationFailed, HTTPStatus.EXPECTATION_FAILED),
    (errors.UnsupportedTransferCoding, HTTPStatus.NOT_IMPLEMENTED),
    (errors.ParseException, HTTPStatus.BAD_REQUEST),
)


class Reader(SocketUnreader):  # type: ignore[misc]
    """Reads a request until its deadline, and not each piece until one of its own."""

    deadline = 0.0

    @override
    def chunk(self, size_hint: int | None = None) -> bytes:
        # What is here by now is taken, however late we come to read it: that we are slow is not the client's fault.
        self.sock.settimeout(max(0.0, self.deadline - time.monotonic()))
        try:
            return bytes(super().chunk(size_hint))
        except BlockingIOError:
            raise TimeoutError from None
        finally:
            self.sock.settimeout(ARRIVAL_SECONDS)  # of what is written from now on


class Parser(RequestParser):  # type: ignore[misc]
    """Of one connection, which may bring many requests: each has its own deadline."""

    def __init__(self, cfg: Any, source: Any, source_addr: Any) -> None:
        super().__init__(cfg, source, source_addr)
        self.unreader = Reader(source)

    @override
    def __next__(self) -> Any:
        self.unreader.deadline = time.monotonic() + ARRIVAL_SECONDS
        self.unreader.sock.settimeout(ARRIVAL_SECONDS)
        try:
            return super().__next__()
        except TimeoutError as late:
            raise TooSlow from late


class Worker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's worker with threads. Named in config.gunicorn."""

    @override
    def handle(self, conn: Any) -> Any:
        if conn.parser is None and not self.cfg.is_ssl:
            conn.parser = Parser(self.cfg, conn.sock, conn.client)
        goes_on = super().handle(conn)
        if goes_on is False:
            # By this thread: gunicorn's main one would linger over each, and serve nobody meanwhile.
            util.close_graceful(conn.sock, timeout=LINGER_SECONDS)
            conn.close = _is_closed
        return goes_on

    @override
    def handle_request(self, req: Any, conn: Any) -> Any:
        try:
            return super().handle_request(req, conn)
        except TimeoutError:
            telemetry.emit("answer.not_taken", level="warning", address=conn.client[0])
            return False

    @override
    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        status = status_of(exc)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log.error("a request failed outside of Django", exc_info=exc)
        request_id = str(uuid.uuid4())
        with telemetry.bound(request_id=request_id):
            telemetry.emit(
                "request.unreadable", level="warning", status=int(status),
                error_class=type(exc).__name__, address=addr[0] if addr else "",
            )  # fmt: skip
            answer = answer_of(status, request_id)
        with contextlib.suppress(OSError):
            client.sendall(answer)


def _is_closed(*, graceful: bool = False) -> None:
    """In the place of closing what is closed already."""


def status_of(exc: Exception) -> HTTPStatus:
    found = (status for kind, status in STATUSES if isinstance(exc, kind))
    return next(found, HTTPStatus.INTERNAL_SERVER_ERROR)


def answer_of(status: HTTPStatus, request_id: str) -> bytes:
    """The whole of an answer. It says nothing of the request but its id, and ends the connection."""
    from bookings.api import problems  # noqa: PLC0415  it needs settings, which the web process has by now

    body = problems.answer(status).content
    head = (
        f"HTTP/1.1 {int(status)} {status.phrase}\r\nConnection: close\r\nCache-Control: no-store\r\n"
        f"Content-Type: {problems.CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
        f"X-Request-ID: {request_id}\r\n\r\n"
    )
    return head.encode() + body

"""A transport whose every read, write and connect ends by one deadline, set around the call.

Timeouts per read do not bound a call: a provider that drips a byte a second, in the head as well
as in the body, keeps each of them happy for ever. Invariant: inside `until(deadline)` no socket
operation waits past `deadline` (monotonic). The stream also notes whether an answer arrived after
its question; see `DeadlineStream.is_answer_fresh`.
"""

import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, override

import httpcore2
import httpx2

_deadline: ContextVar[float] = ContextVar("deadline")


@contextmanager
def until(deadline: float) -> Iterator[None]:
    """Bound all I/O of this thread, within the block, by a point of `time.monotonic()`."""
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def remaining() -> float:
    return _deadline.get() - time.monotonic()


class DeadlineTransport(httpx2.HTTPTransport):
    """The ordinary transport over a pool that connects through `DeadlineBackend`.

    httpx2 offers no way to hand its pool a backend, so the pool is made again here; a test that
    drips a head byte by byte fails if a release of httpx2 stops looking at this attribute.
    """

    def __init__(self, *, context: ssl.SSLContext, limits: httpx2.Limits) -> None:
        super().__init__(verify=context, trust_env=False, limits=limits, retries=0)
        self._pool.close()
        self._pool = httpcore2.ConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            retries=0,
            network_backend=DeadlineBackend(),
        )


class DeadlineBackend(httpcore2.SyncBackend):
    """Connects within what is left of the deadline."""

    @override
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        bounded = _bound(timeout, httpcore2.ConnectTimeout)
        stream = super().connect_tcp(host, port, bounded, local_address, socket_options)
        return DeadlineStream(stream)


class DeadlineStream(httpcore2.NetworkStream):
    """A stream whose waits end with the deadline.

    `is_answer_fresh`: something was read since the last write. Where nothing was, the answer just
    parsed was lying in the buffer before the question went out (a doubled reply to an earlier
    request), and answers nothing.
    """

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream
        self.is_answer_fresh = False

    @override
    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, _bound(timeout, httpcore2.ReadTimeout))
        self.is_answer_fresh = True
        return data

    @override
    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.is_answer_fresh = False
        self._stream.write(buffer, _bound(timeout, httpcore2.WriteTimeout))

    @override
    def close(self) -> None:
        self._stream.close()

    @override
    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        bounded = _bound(timeout, httpcore2.ConnectTimeout)
        return DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, bounded))

    @override
    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _bound(timeout: float | None, too_late: type[httpcore2.TimeoutException]) -> float:
    left = remaining()
    if left <= 0:
        raise too_late("the call's deadline has passed")
    return left if timeout is None else min(timeout, left)

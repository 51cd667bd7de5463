"""Tickets: the doorbell. A message says "there is work in this lane" and carries no job, so that losing one or doubling
one is harmless.

Rings are coalesced: a process rings a lane at most once in RING_SECONDS, and the last ring of a burst is sent at its
end. Publishing happens on a thread and a connection of its own, with short timeouts; after a failure the process stays
silent for some seconds. A caller never waits for the broker and never fails by it: the ring sweep covers what is lost.
A broker behind TLS proves its name first.
"""

import atexit
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from celery import current_app
from django.conf import settings
from kombu import Connection

from ledger import crashpoints, telemetry

TASK = "ledger.drive"
FLUSH_SECONDS = 1.0


def ring(lane: str) -> None:
    """Say that a lane has work. Returns at once; call it after the commit that made the work visible."""
    if (lanes := _gathered.get()) is not None:
        lanes.add(str(lane))
    elif _listener is not None:
        _listener(str(lane))
    else:
        _bell.ring(str(lane))


@contextmanager
def gathered() -> Iterator[None]:
    """Within the block this thread rings no lane; each that it would have rung is rung once when the block is left."""
    lanes: set[str] = set()
    token = _gathered.set(lanes)
    try:
        yield
    finally:
        _gathered.reset(token)
        for lane in sorted(lanes):
            ring(lane)


@contextmanager
def heard_by(listener: Callable[[str], None]) -> Iterator[None]:
    """Within the block, rings are told to `listener` and nothing is published: a simulation is its own broker."""
    global _listener  # noqa: PLW0603
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


def verified(url: str) -> dict[str, Any] | bool:
    """What a connection to this broker is told of TLS: by itself kombu asks for no proof, and takes whoever answers. In the
    address, `ssl_...` says more: by whose certificate, for one.
    """
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED} if url.startswith("rediss://") else False


class _Bell:
    """One publishing thread per process, started with the first ring."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._wanted: dict[str, float] = {}  # lane -> earliest monotonic time of its next ticket
        self._last: dict[str, float] = {}
        self._silent_until = 0.0
        self._busy = False
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None

    def ring(self, lane: str) -> None:
        with self._wake:
            if lane in self._wanted:
                return  # the thread knows already; waking it for each ring of a burst would cost more than the ring
            self._wanted[lane] = self._last.get(lane, 0.0) + settings.RING_SECONDS
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="tickets", daemon=True)
                self._thread.start()
            self._wake.notify()

    def flush(self, seconds: float) -> bool:
        """Wait until nothing is left to publish, at most so long."""
        limit = time.monotonic() + seconds
        with self._wake:
            return self._wake.wait_for(
                lambda: not self._wanted and not self._busy, max(0.0, limit - time.monotonic())
            )

    def _serve(self) -> None:
        while True:
            self._publish(self._next())
            with self._wake:
                self._busy = False
                self._wake.notify_all()

    def _next(self) -> str:
        with self._wake:
            while True:
                now = time.monotonic()
                due = [lane for lane, earliest in self._wanted.items() if earliest <= now]
                if due:
                    del self._wanted[due[0]]
                    self._last[due[0]] = now
                    self._busy = True
                    return due[0]
                soonest = min(self._wanted.values(), default=now + 3600)
                self._wake.wait(soonest - now)

    def _publish(self, lane: str) -> None:
        if time.monotonic() < self._silent_until:
            telemetry.publications.labels(lane=lane, result="silent").inc()
            return
        try:
            crashpoints.reach("publish.before")
            self._send(lane)
            crashpoints.reach("publish.after")
        except Exception as error:  # noqa: BLE001  whatever the broker does, the sweep rings again
            self._silent_until = time.monotonic() + settings.PUBLISH_SILENCE_SECONDS
            self._drop_connection()
            telemetry.publications.labels(lane=lane, result="failed").inc()
            telemetry.emit(
                "ticket.failed", level="warning", lane=lane, error_class=type(error).__name__
            )
        else:
            telemetry.publications.labels(lane=lane, result="published").inc()
            telemetry.emit("ticket.published", level="debug", lane=lane)

    def _send(self, lane: str) -> None:
        if self._connection is None:
            limit = settings.PUBLISH_TIMEOUT_SECONDS
            self._connection = Connection(
                settings.BROKER_URL,
                ssl=verified(settings.BROKER_URL),
                transport_options={
                    "socket_timeout": limit,
                    "socket_connect_timeout": limit,
                    "retry_on_timeout": False,
                    "max_retries": 0,
                },
            )
        current_app.send_task(
            TASK,
            (lane,),
            queue=lane,
            connection=self._connection,
            retry=False,
            ignore_result=True,
        )

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.release()
            except Exception as error:  # noqa: BLE001  it is thrown away in any case
                telemetry.emit("ticket.failed", level="debug", error_class=type(error).__name__)


_bell = _Bell()
_listener: Callable[[str], None] | None = None
_gathered: ContextVar[set[str] | None] = ContextVar("gathered", default=None)


def _new_bell() -> None:
    """After a fork: the thread and its connection belong to the parent."""
    global _bell  # noqa: PLW0603
    _bell = _Bell()


def flush(seconds: float = FLUSH_SECONDS) -> bool:
    """Publish what was rung, before the process leaves; False when that took too long."""
    return _bell.flush(seconds)


os.register_at_fork(after_in_child=_new_bell)
atexit.register(flush)

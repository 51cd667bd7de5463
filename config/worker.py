"""What a Celery worker adds to the engine: the flag that says "leave", and the watcher of its children.

SIGTERM goes to the parent, which sets a flag in memory that was shared before the fork; every run reads it each turn.
Each child tells the watcher, a process started before the pool forks, its random owner id together with a pidfd; when
that becomes readable, the child is dead and the watcher ends its leases. In children TERM and QUIT get their default
action, so that a cold stop is a crash and not an exception in the middle of a write.
"""

import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import billiard.pool
from billiard import process
from celery import signals
from django.conf import settings
from django.db import connections

from config import broker
from ledger import engine, leases, telemetry

# A child that leaves waits until its parent has counted its last message, by default for 30 s; after a sibling was killed
# the count can fall short for ever. Our messages carry nothing: two seconds (of 0.1 s each) are enough.
LAST_WORDS_TRIES = 20
SUPPORTED_POOLS = ("prefork", "solo")

_leaving = mmap.mmap(-1, 1)
_watcher: subprocess.Popen[bytes] | None = None
_channel: socket.socket | None = None


def connect() -> None:
    """Attach to Celery's signals; they fire in worker processes only."""
    broker.outlive()
    billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = LAST_WORDS_TRIES
    signals.setup_logging.connect(_keep_logging, weak=False)
    signals.celeryd_init.connect(_refuse_unsafe, weak=False)
    signals.worker_init.connect(_start_watcher, weak=False)
    signals.worker_ready.connect(_ready, weak=False)
    signals.worker_shutting_down.connect(_leave, weak=False)
    signals.worker_shutdown.connect(_stop_watcher, weak=False)
    signals.worker_process_init.connect(_child_started, weak=False)


def _keep_logging(**_: Any) -> None:
    """A receiver is enough: Celery then leaves handlers and levels as `config.logs` made them."""


def _refuse_unsafe(options: Mapping[str, Any], **_: Any) -> None:
    """What the command line of a worker may not ask for; settings are the business of `manage.py check`."""
    pool = options.get("pool_cls") or options.get("pool") or SUPPORTED_POOLS[0]
    name = str(getattr(pool, "__module__", pool)).rpartition(".")[2]
    if name not in SUPPORTED_POOLS:
        raise SystemExit(
            f"the pool {name!r} is not supported, only {' and '.join(SUPPORTED_POOLS)}: leases belong to a process,"
            " and so does its one database connection"
        )
    if options.get("soft_time_limit"):
        raise SystemExit("--soft-time-limit: its exception can land inside a COMMIT; leave it out")
    if options.get("pool_start_method") not in (None, "fork"):
        raise SystemExit("--pool-start-method: only fork hands the flag that says leave to a child")
    if against := against_limit(options.get("time_limit")):
        raise SystemExit(f"--time-limit {against}")


def against_limit(hard: float | None) -> str:
    """What is wrong with a hard time limit: it would end what may still end by itself, or its message comes again before."""
    least, most = settings.TASK_TIME_LIMIT_SECONDS, settings.VISIBILITY_TIMEOUT_SECONDS
    if hard and hard < least:
        return f"{hard:g}: under TASK_TIME_LIMIT_SECONDS ({least:g})"
    if hard and hard >= most:
        return f"{hard:g}: not under VISIBILITY_TIMEOUT_SECONDS ({most:g})"
    return ""


def is_leaving() -> bool:
    return _leaving[0] == 1


def _start_watcher(**_: Any) -> None:
    global _watcher, _channel  # noqa: PLW0603  one worker, one watcher
    _leaving[0] = 0
    connections.close_all()  # nothing of the parent's is shared with a child
    engine.leaving = is_leaving
    _channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _watcher = subprocess.Popen(  # noqa: S603  our own interpreter and module
        [sys.executable, "-m", "config.watcher", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        start_new_session=True,  # a TERM to the group must not blind it while children still work
    )
    theirs.close()


def _ready(**_: Any) -> None:
    telemetry.emit("worker.ready", pid=os.getpid())


def _leave(**_: Any) -> None:
    _leaving[0] = 1
    telemetry.emit("worker.leaving", pid=os.getpid())


def _stop_watcher(**_: Any) -> None:
    if _channel is not None:
        _channel.close()
    if _watcher is not None:
        _watcher.terminate()
        try:
            _watcher.wait(5)
        except subprocess.TimeoutExpired:
            _watcher.kill()


def _child_started(**_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    # A child's place in its pool: whoever replaces it after its death has it too.
    engine.makes_way = getattr(process.current_process(), "index", 0) % leases.SUSPECTS_EVERY == 0
    if _channel is None:
        return
    fd = os.pidfd_open(os.getpid())
    try:
        socket.send_fds(_channel, [leases.owner().bytes], [fd])
    except OSError as error:  # without a watcher, leases expire
        telemetry.emit("watcher.failed", level="warning", error_class=type(error).__name__)
    finally:
        os.close(fd)

"""The watcher of one worker's children: `python -m config.watcher FD`, started by `config.worker`.

It holds a pidfd of every child and of the parent. A child's death is seen at once (Celery's own pool may take seconds),
its leases are ended with a higher fence, and the lanes are rung. When the parent is gone, it leaves: then leases expire.
A process and not a thread: a fork of the pool must not meet a thread that holds a lock.
"""

import importlib
import os
import selectors
import socket
import sys
from uuid import UUID

import django
from django.db import Error, connection

from ledger import leases, telemetry, tickets

CHECK_SECONDS = 60.0


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    parent = os.pidfd_open(os.getppid())
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ.setdefault("AMENDS_ROLE", "worker")
    django.setup()
    importlib.import_module("config.celery")  # the current app, for rings

    watch = selectors.DefaultSelector()
    watch.register(parent, selectors.EVENT_READ, "parent")
    watch.register(channel, selectors.EVENT_READ, "channel")
    while True:
        for key, _ in watch.select(CHECK_SECONDS):
            if key.data == "parent":
                return
            if key.data == "channel":
                if not _introduce(channel, watch):
                    return  # nobody has the other end: the parent was gone before we could look, and every child is
                continue
            watch.unregister(key.fileobj)
            os.close(key.fd)
            _bury(UUID(bytes=key.data))


def _introduce(channel: socket.socket, watch: selectors.BaseSelector) -> bool:
    message, fds, _, _ = socket.recv_fds(channel, 16, 1)
    if not message:
        return False
    watch.register(fds[0], selectors.EVENT_READ, message)
    return True


def _bury(owner: UUID) -> None:
    """End a dead child's leases and say so. A failure leaves them to expire."""
    try:
        lanes = leases.end_owner(owner)
    except Error as error:
        telemetry.emit("watcher.failed", level="error", error_class=type(error).__name__)
        return
    finally:
        connection.close()
    telemetry.emit("owner.lost", level="warning", owner=str(owner), lost=sum(lanes.values()))
    for lane in lanes:
        tickets.ring(lane)


if __name__ == "__main__":
    main()

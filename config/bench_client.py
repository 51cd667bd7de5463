"""The clients of `manage.py bench submit`: a process of its own, one connection and one thread for each client, kept alive.

Bytes in, bytes out: what it costs would be counted against the server, so it says how much of a core it used. Each request
has a key of its own; an answer other than 202 ends the run. Reads one order (JSON) from standard input, prints one result.
"""

import json
import re
import socket
import sys
import threading
import time
from typing import Any, override

LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
ACCEPTED = b"HTTP/1.1 202 "
HEAD = (
    "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
    "Content-Length: {length}\r\nIdempotency-Key: {number}-{{n}}\r\n\r\n"
)
TIMEOUT_SECONDS = 30.0


class Client(threading.Thread):
    """One client, asking again as soon as it was answered, until the time is over."""

    def __init__(self, order: dict[str, Any], number: int) -> None:
        super().__init__()
        self._order, self._body = order, json.dumps(order["body"]).encode()
        self._head = HEAD.format(
            path=order["path"], key=order["key"], length=len(self._body), number=number
        )
        self.answers, self.failure = 0, ""

    @override
    def run(self) -> None:
        address = (self._order["host"], self._order["port"])
        try:
            with socket.create_connection(address, timeout=TIMEOUT_SECONDS) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                until = time.monotonic() + self._order["seconds"]
                while time.monotonic() < until:
                    self._ask(connection)
        except OSError as error:
            self.failure = f"{type(error).__name__}: {error}"

    def _ask(self, connection: socket.socket) -> None:
        head = self._head.format(n=self.answers)
        connection.sendall(head.encode() + self._body)
        answer = read(connection)
        if not answer.startswith(ACCEPTED):
            raise OSError(answer[:600].decode(errors="replace"))
        self.answers += 1


def read(connection: socket.socket) -> bytes:
    """One answer with its body; OSError where the server closed before its end."""
    found = b""
    while True:
        if not (piece := connection.recv(65_536)):
            raise OSError("the server closed the connection")
        found += piece
        end = found.find(b"\r\n\r\n")
        length = LENGTH.search(found, 0, end) if end >= 0 else None
        if length and len(found) - end - 4 >= int(length[1]):
            return found


def main() -> None:
    order = json.loads(sys.stdin.read())
    clients = [Client(order, number) for number in range(order["clients"])]
    begun, busy = time.monotonic(), time.process_time()
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    seconds = time.monotonic() - begun
    result = {
        "answers": sum(one.answers for one in clients),
        "seconds": seconds,
        "busy": (time.process_time() - busy) / seconds,
        "failures": [one.failure for one in clients if one.failure],
    }
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()

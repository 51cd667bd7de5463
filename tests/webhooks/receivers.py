"""A real HTTP server of a tenant, that answers as it is told and keeps what it was sent, byte by byte."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, override

from standardwebhooks.webhooks import Webhook

Say = Callable[["Handler"], None]


@dataclass(frozen=True)
class Got:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> Any:
        """What it says, if it is signed with this secret."""
        return Webhook(secret).verify(self.body, dict(self.headers))


@dataclass
class Receiver:
    """`says` is by path, and asked again for each request; a path without one is told 204."""

    port: int = 0
    got: list[Got] = field(default_factory=list)
    says: dict[str, Say] = field(default_factory=dict)
    released: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str) -> list[Got]:
        return [one for one in self.got if one.path == path]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    receiver: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.receiver.got.append(
            Got(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        )
        self.receiver.says.get(self.path, status(204))(self)

    def do_GET(self) -> None:
        self.receiver.got.append(Got(f"GET {self.path}", {}, b""))
        status(200)(self)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass


def status(code: int, body: bytes = b"", **headers: str) -> Say:
    def say(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return say


def hang(handler: Handler) -> None:
    """Says nothing until the test is over."""
    handler.receiver.released.wait(20)
    handler.close_connection = True


def drip(head: bytes) -> Say:
    """A byte every tenth of a second, for ever: each read is answered in time."""

    def say(handler: Handler) -> None:
        handler.close_connection = True
        try:
            handler.wfile.write(head)
            while not handler.receiver.released.wait(0.1):
                handler.wfile.write(b"x")
                handler.wfile.flush()
        except OSError:
            return

    return say


@contextmanager
def listening(wrap: Callable[[Any], Any] | None = None) -> Iterator[Receiver]:
    receiver = Receiver()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Of", (Handler,), {"receiver": receiver}))
    server.daemon_threads = True
    if wrap is not None:
        server.socket = wrap(server.socket)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()
        thread.join(10)

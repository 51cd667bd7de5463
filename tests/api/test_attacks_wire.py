"""What a client may put on the wire: no request, half a request, too much of one, two in one, or one that never ends.

A real gunicorn as the stack runs it, and sockets. Whatever comes, the answer is a problem document, nothing of what was
sent is in it or in the log, nothing is booked, and the next client is served.
"""

import contextlib
import gzip
import http.client
import json
import secrets
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from config import programs, web_worker
from tests import hotels
from tests.acceptance.conftest import live
from tests.acceptance.live import Agent, Live

__all__ = ["live"]
pytestmark = pytest.mark.timeout(180)
CANARY = "canary-77aa"
SLACK_SECONDS = 20.0  # beside the limit that is tested, on a machine that is busy
STAYING = 20  # of each kind
THREADS = 8  # of the stack's web process
MEBIBYTE = 1024 * 1024
HUGE = 100 * MEBIBYTE
SHUT = (BrokenPipeError, ConnectionResetError)


class Web:
    """The web process, and who talks to it."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.agent: Agent = live.agent()
        self.key = self.agent.headers["Authorization"]

    @contextlib.contextmanager
    def connected(self, takes_bytes: int = MEBIBYTE) -> Iterator[socket.socket]:
        with socket.socket() as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, takes_bytes)
            wire.settimeout(60)
            wire.connect(("127.0.0.1", int(self.live.stack.api_url.rpartition(":")[2])))
            yield wire

    def head(self, line: str, *headers: str) -> bytes:
        lines = (line, "Host: localhost", f"Authorization: {self.key}", *headers)
        return "".join(f"{one}\r\n" for one in lines).encode() + b"\r\n"

    def posting(self, *headers: str) -> bytes:
        known = ("Content-Type: application/json", f"Idempotency-Key: {CANARY}")
        return self.head("POST /v1/bookings HTTP/1.1", *known, *headers)

    def body(self) -> bytes:
        return json.dumps(self.agent.small.stay()).encode()

    def ask(self, sent: bytes) -> "Answer":
        with self.connected() as wire:
            with contextlib.suppress(*SHUT):  # it answers before it has read all
                wire.sendall(sent)
            return Answer(wire)


class Answer:
    """The first answer of a connection, and all that came after it."""

    def __init__(self, wire: socket.socket) -> None:
        found = http.client.HTTPResponse(wire)
        found.begin()
        self.status, self.headers, self.body = found.status, found.headers, found.read()
        self.is_last = found.will_close

    def problem(self) -> dict[str, Any]:
        assert self.headers["Content-Type"] == "application/problem+json", self.body
        found: dict[str, Any] = json.loads(self.body)
        assert found["status"] == self.status
        assert found["instance"] == f"urn:amends:request:{self.headers['X-Request-ID']}"
        assert CANARY not in f"{self.headers}{self.body!r}"
        return found


@pytest.fixture(scope="module")
def web(live: Live) -> Web:
    live.start(programs.API)
    return Web(live)


@pytest.fixture(autouse=True)
def nothing_happened(web: Web) -> Iterator[None]:
    before = hotels.accepted_rows()
    yield
    assert hotels.accepted_rows() == before
    assert web.ask(web.head("GET /v1/hotels HTTP/1.1")).status == 200
    assert CANARY not in web.live.stack.log(programs.API).read_text()


LINE = "GET /v1/hotels HTTP/1.1"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"canary-77aa\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00canary-77aa\r\n\r\n", 400),
        (b"GET /v1/hotels?canary-77aa HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET /v1/hotels?" + b"canary-77aa" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nCookie: " + b"canary-77aa" * 1_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X-A: canary-77aa\r\n" * 10_000 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nCookie : canary-77aa\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer canary-77aa\0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer canary-77aa\rX: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: a\r\n canary-77aa\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX A: canary-77aa\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nExpect: canary-77aa\r\n\r\n", 417),
        (b"G\xc3T / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_what_is_no_request_is_refused_like_everything_else(
    web: Web, sent: bytes, status: int
) -> None:
    answer = web.ask(sent)
    assert answer.status == status, answer.body
    answer.problem()
    assert answer.is_last
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("lengths", "status"),
    [
        (("Content-Length: 6", "Transfer-Encoding: chunked"), 400),
        (("Transfer-Encoding: chunked", "Content-Length: 6"), 400),
        (("Content-Length: 6", "Content-Length: 7"), 400),
        (("Content-Length: 6", "Content-Length: 6"), 400),
        (("Content-Length: 6, 6",), 400),
        (("Content-Length: +6",), 400),
        (("Content-Length: -6",), 400),
        (("Content-Length: 0x6",), 400),
        (("Transfer-Encoding: chunked, chunked",), 400),
        (("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), 400),
        (("Transfer-Encoding: identity",), 400),
        (("Transfer-Encoding: xchunked",), 501),
        (("Transfer-Encoding : chunked",), 400),
    ],
    ids=str,
)
def test_a_second_request_within_the_body_of_one_is_not_heard(
    web: Web, lengths: tuple[str, ...], status: int
) -> None:
    """Two readings of where a body ends: none is chosen, and the connection ends."""
    inner = web.posting(f"Content-Length: {len(web.body())}") + web.body()
    with web.connected() as wire:
        wire.sendall(web.posting(*lengths) + b"0\r\n\r\nX" + inner)
        answer = Answer(wire)
        assert answer.status == status, answer.body
        answer.problem()
        with contextlib.suppress(*SHUT):
            assert wire.recv(1) == b""


@pytest.mark.parametrize(
    ("length", "status"), [(f"Content-Length: {HUGE}", 413), ("Transfer-Encoding: chunked", 411)]
)
@pytest.mark.parametrize("path", ["/v1/bookings", "/v1/bookings/bulk"])
def test_a_huge_body_is_refused_at_its_head_and_not_taken_in(
    web: Web, path: str, length: str, status: int
) -> None:
    head = web.posting(length).replace(b"/v1/bookings", path.encode())
    with web.connected() as wire:
        wire.sendall(head)
        answer = Answer(wire)
        assert answer.status == status
        answer.problem()
        piece, taken = b"%x\r\n" % MEBIBYTE + b"x" * MEBIBYTE + b"\r\n", 0
        with contextlib.suppress(*SHUT):
            while taken < HUGE:
                taken += wire.send(piece)
        assert taken < HUGE / 2


def test_what_would_be_huge_is_not_unpacked(web: Web) -> None:
    bomb = gzip.compress(b" " * HUGE)
    said = ("Content-Encoding: gzip", f"Content-Length: {len(bomb)}")
    assert web.ask(web.posting(*said) + bomb).problem()["status"] == 415


def test_who_sends_slowly_keeps_no_thread(web: Web) -> None:
    """More heads and bodies than there are threads, a byte now and then: each is told so, and left."""
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(web.connected()) for _ in range(THREADS * 2)]
        for wire in wires[::2]:
            wire.sendall(b"GET /v1/hotels HTTP/1.1\r\nX-Slow: ")
        for wire in wires[1::2]:
            wire.sendall(web.posting("Content-Length: 200000"))
        began = time.monotonic()
        answers = dripped(wires)
        assert [answer.status for answer in answers] == [408] * len(wires)
        for answer in answers:
            answer.problem()
        assert time.monotonic() - began < 3 * web_worker.ARRIVAL_SECONDS + SLACK_SECONDS


def test_who_does_not_read_keeps_no_thread(web: Web) -> None:
    """More than there are threads ask, on and on, and take nothing of what they are told."""
    with contextlib.ExitStack() as stack:
        for _ in range(THREADS + 2):
            wire = stack.enter_context(web.connected(takes_bytes=1))
            wire.settimeout(0)
            flood(wire, web.head("GET /v1/schema HTTP/1.1"))
        began = time.monotonic()
        for _ in range(50):  # by the last of them, all of those wait to be read
            assert web.ask(web.head(LINE)).status == 200
        assert time.monotonic() - began < 3 * web_worker.ARRIVAL_SECONDS + SLACK_SECONDS


def test_who_stays_after_the_last_answer_holds_up_nobody(web: Web) -> None:
    """Gunicorn lingers over each that does not close, and by itself would do so where nobody else is served meanwhile."""
    with contextlib.ExitStack() as stack:
        for request in (b"x\r\n\r\n", web.head(LINE, "Connection: close")) * STAYING:
            wire = stack.enter_context(web.connected())
            wire.sendall(request)
        began = time.monotonic()
        assert web.ask(web.head(LINE)).status == 200
        assert (
            time.monotonic() - began < SLACK_SECONDS
        )  # two seconds for each of them is a minute and more


def flood(wire: socket.socket, request: bytes) -> None:
    """As many requests as the connection takes."""
    with contextlib.suppress(BlockingIOError, *SHUT):
        while True:
            wire.send(request)


def dripped(wires: list[socket.socket]) -> list[Answer]:
    """A byte now and then to each, until it has answered."""
    answers, left = [], list(wires)
    while left:
        ready = select.select(left, [], [], 0.5)[0]
        for wire in ready:
            answers.append(Answer(wire))
            wire.close()
            left.remove(wire)
        for wire in left:
            with contextlib.suppress(*SHUT):
                wire.send(b"x")
    return answers


@pytest.mark.parametrize(
    "headers",
    [
        ("Host: evil.example",),
        ("Host: localhost\r\nHost: evil.example",),
        ("Host: evil.example\r\nX-Forwarded-Host: localhost",),
    ],
    ids=str,
)
def test_a_host_that_is_not_ours_gets_nothing(web: Web, headers: tuple[str, ...]) -> None:
    said = "".join(f"{one}\r\n" for one in (LINE, *headers, f"Authorization: {web.key}"))
    answer = web.ask(said.encode() + b"\r\n")
    assert answer.problem()["status"] == 400
    assert b"evil" not in answer.body


@pytest.mark.parametrize(
    "said",
    [
        "X-Forwarded-Host: evil.example",
        "Forwarded: host=evil.example;proto=https",
        "X-Original-URL: /v1/docs",
        "SCRIPT_NAME: /evil.example",
        "PATH_INFO: /v1/docs",
        "X_Forwarded_For: 6.6.6.6",
    ],
)
def test_what_a_proxy_would_say_is_not_heard(web: Web, said: str) -> None:
    plain, told = (web.ask(web.head(LINE, *more)) for more in ((), (said,)))
    assert (told.status, told.body) == (200, plain.body)
    assert "evil" not in str(told.headers)


def test_the_target_of_a_request_may_be_absolute_and_changes_no_host(web: Web) -> None:
    answer = web.ask(web.head("GET http://evil.example/v1/hotels HTTP/1.1"))
    assert answer.status in (200, 400)
    assert b"evil" not in answer.body
    assert "evil" not in str(answer.headers)


def test_of_two_keys_none_is_taken(web: Web) -> None:
    other = web.live.agent().headers["Authorization"]
    answer = web.ask(web.head(LINE, f"Authorization: {other}"))
    assert answer.problem()["status"] == 401


@pytest.mark.parametrize(
    "lines",
    [
        [b"k", b"k"],
        [b"k", b"other"],
        [b'"k"', b'"other"'],
        [b"k,other"],
        [b"cl\xe9"],
        [b'"cl\xe9"'],
        ["cl\u00e9".encode()],
        [b""],
        [b"   "],
        [secrets.token_urlsafe(192).encode()],
        [secrets.token_urlsafe(3_000).encode()],
        [b"a b"],
        [],
    ],
    ids=lambda lines: b"|".join(lines)[:20].decode("latin-1"),
)
def test_a_key_that_is_no_key_on_the_wire_books_nothing(web: Web, lines: list[bytes]) -> None:
    """Two lines are no key, be they equal; nor are bytes that mean one text to one server and another to the next."""
    keys = b"".join(b"idempotency-KEY: " + line + b"\r\n" for line in lines)
    said = ("Content-Type: application/json", f"Content-Length: {len(web.body())}")
    head = web.head("POST /v1/bookings HTTP/1.1", *said)
    found = web.ask(head[:-2] + keys + b"\r\n" + web.body()).problem()
    assert found["status"] == 400
    assert [error["pointer"] for error in found["errors"]] == ["Idempotency-Key"]


def test_a_header_is_one_line_whatever_a_client_names(web: Web) -> None:
    """What comes back of a request, its id, is either a plain token or ours."""
    for said in ("a b", "a%0d%0aSet-Cookie:x", "\u00e9", "x" * 200):
        told = web.ask(web.head(LINE, f"X-Request-ID: {said}"))
        assert told.status == 200
        assert "Set-Cookie" not in told.headers
        assert " " not in told.headers["X-Request-ID"]


@pytest.fixture
def with_tls_demanded(web: Web) -> Iterator[None]:
    web.live.end(programs.API)
    web.live.start(programs.API, env={"SECURE_SSL_REDIRECT": "true"})
    yield
    web.live.end(programs.API)
    web.live.start(programs.API)


@pytest.mark.usefixtures("with_tls_demanded")
@pytest.mark.parametrize(
    "said", ["X-Forwarded-Proto: https", "X-Forwarded-Ssl: on", "X-Forwarded-Protocol: ssl"]
)
def test_nobody_says_that_it_was_https_where_no_proxy_is_trusted(web: Web, said: str) -> None:
    """Not even from our own machine, where gunicorn by itself believes it."""
    answer = web.ask(web.head(LINE, said))
    assert answer.problem()["type"] == "urn:amends:problem:https-required"

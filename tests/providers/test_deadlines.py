"""Every call ends in time, with one wire request at most and in the class that the bytes sent
allow.
"""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bookings.providers import answers, http
from ledger import outcomes
from tests.providers import conftest

SLACK_SECONDS = 1.5


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[bytes]]]:
    """A server of raw bytes: notes what each connection asked first, then does as told."""
    asked: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(5)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    asked.append(connection.recv(65536))
                    serve(connection)
                except OSError:
                    pass  # the client hung up, as it should

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
        assert not thread.is_alive()


def exchange(url: str, seconds: float = 0.5) -> tuple[Any, float]:
    started = time.monotonic()
    ending = http.exchange(http.Request("POST", url, seconds, key="j:s:forward", body={"a": 1}))
    return ending, time.monotonic() - started


def drip(data: bytes, interval: float = 0.05) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(interval)

    return serve


def endless_body(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while True:
        connection.sendall(b" " * 1024)


def endless_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connection.sendall(b"x" * 1024)


def silence(connection: socket.socket) -> None:
    while connection.recv(1024):
        pass


ENDLESS: list[tuple[str, Callable[[socket.socket], None], str]] = [
    ("dripping head", drip(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1000), "deadline"),
    ("dripping body", drip(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 1000), "deadline"),
    ("early hints without end", drip(b"HTTP/1.1 103 Early\r\n\r\n" * 100, 0.005), "deadline"),
    ("silence", silence, "deadline"),
    ("endless body", endless_body, "answer_too_large"),
    ("endless head", endless_head, "broken_answer"),
]


@pytest.mark.parametrize(
    ("serve", "reason"), [row[1:] for row in ENDLESS], ids=[e[0] for e in ENDLESS]
)
def test_no_answer_lasts_longer_than_the_call(serve: Any, reason: str):
    with server(serve) as (url, asked):
        ending, took = exchange(url)
    assert isinstance(ending, outcomes.Unknown), ending
    assert ending.reason == reason
    assert took < 0.5 + SLACK_SECONDS
    assert len(asked) == 1, "one wire request per call"


def test_no_time_left_sends_nothing():
    with server(silence) as (url, asked):
        ending, took = exchange(url, seconds=0)
    assert isinstance(ending, outcomes.NotSent)
    assert ending.reason == "no_time_left"
    assert took < SLACK_SECONDS
    assert asked == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:1/v1/captures", "connect_failed"),
        ("http://no-such-host.invalid/v1/captures", "connect_failed"),
        ("gopher://127.0.0.1/v1/captures", "bad_url"),
        ("http://127.0.0.1:nowhere/", "bad_url"),
    ],
)
def test_where_no_byte_left_it_was_not_sent(url: str, reason: str):
    ending, took = exchange(url, seconds=5)
    assert isinstance(ending, outcomes.NotSent), ending
    assert ending.reason == reason
    assert took < 5 + SLACK_SECONDS


def test_full_backlog_is_a_connect_timeout(settings: Any):
    settings.PROVIDER_CONNECT_SECONDS = 0.3
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:  # nobody accepts: the queue is full
            one.settimeout(0)
            one.connect_ex(address)
        ending, took = exchange(f"http://127.0.0.1:{address[1]}", seconds=5)
        for one in waiting:
            one.close()
    assert isinstance(ending, outcomes.NotSent), ending
    assert ending.reason == "connect_timeout"
    assert took < 0.3 + SLACK_SECONDS


def test_redirect_is_not_followed(sandbox: conftest.RunningSandbox):
    for status in (301, 302, 303, 307, 308):
        operation = conftest.capture_of()
        sandbox.rule("redirect", status=status, location="/v1/captures", operation=operation.id)
        outcome = operation.do(operation.call)
        assert isinstance(outcome, outcomes.Unknown)
        assert outcome.reason == f"status_{status}"
        assert len(sandbox.requests(operation.id)) == 1
        assert sandbox.effects(operation.id) == []


def test_stale_connection_never_sends_twice(sandbox: conftest.RunningSandbox):
    """The provider closes each connection after its answer; the next call must not repeat itself
    over that.
    """
    for _ in range(20):
        dropped, kept = conftest.ticket_of(), conftest.ticket_of()
        sandbox.rule("truncate", operation=dropped.id)
        assert isinstance(dropped.do(dropped.call), outcomes.Unknown)
        assert isinstance(kept.do(kept.call), outcomes.Confirmed)
        for operation in (dropped, kept):
            assert len(sandbox.requests(operation.id)) == 1
            assert len(sandbox.effects(operation.id)) == 1


def test_refusing_provider_is_not_sent_and_comes_back(sandbox: conftest.RunningSandbox):
    operation = conftest.capture_of()
    # The way back in goes over the control connection, which is open already.
    sandbox.control("down", how="refuse", seconds=60)
    http.close()  # no connection from before
    try:
        outcome = operation.do(operation.call)
    finally:
        sandbox.control("up")
    assert isinstance(outcome, outcomes.NotSent), outcome
    assert outcome.reason == "connect_failed"
    assert sandbox.requests(operation.id) == []
    assert isinstance(operation.do(operation.call), outcomes.Confirmed)


def test_cookies_and_proxies_play_no_part(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    http.close()

    def serve(connection: socket.socket) -> None:
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nSet-Cookie: sticky=1\r\nContent-Length: 2\r\n"
            b"Connection: close\r\nContent-Type: application/json\r\n\r\n{}"
        )

    with server(serve) as (url, asked):
        for _ in range(2):
            assert isinstance(exchange(url)[0], answers.Answer)
    assert len(asked) == 2
    for request in asked:
        assert b"Idempotency-Key: j:s:forward" in request
        assert b"cookie" not in request.lower()
        assert b"Accept-Encoding: identity" in request


FORK = """
import os
from django.conf import settings
settings.configure(SLOTS=4, PROVIDER_CONNECT_SECONDS=1.0)
from bookings.providers import http
mine = http._client()
child = os.fork()
if child == 0:
    os._exit(0 if http._client() is not mine else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert http._client() is mine
"""


def test_forked_child_makes_a_client_of_its_own():
    # In a process of its own: pytest's has threads, and forks badly.
    program = [sys.executable, "-W", "error", "-c", FORK]
    done = subprocess.run(program, cwd=conftest.ROOT, timeout=30, check=False)
    assert done.returncode == 0

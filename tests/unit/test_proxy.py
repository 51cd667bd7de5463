"""The proxy between our processes and their servers: each mode as its client sees it, and nothing left behind."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from recovery import proxy

SECONDS = 5.0
SILENCE_SECONDS = 0.2


class Echo:
    """A server that repeats what it is told; `heard` is all of it."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.changed = threading.Condition()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def hears(self, said: bytes) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: bytes(self.heard) == said, SECONDS)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._repeat, args=(client,), daemon=True).start()

    def _repeat(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while piece := client.recv(1024):
                with self.changed:
                    self.heard += piece
                    self.changed.notify_all()
                client.sendall(piece)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def between(echo: Echo) -> Iterator[proxy.Proxy]:
    with proxy.Proxy(echo.address) as found:
        yield found


def connect(between: proxy.Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", between.port), SECONDS)


def ask(client: socket.socket, said: bytes = b"ping") -> bytes:
    client.sendall(said)
    return client.recv(1024)


def is_silent(client: socket.socket) -> bool:
    client.settimeout(SILENCE_SECONDS)
    try:
        return client.recv(1) == b"never"
    except TimeoutError:
        return True
    finally:
        client.settimeout(SECONDS)


def is_reset(client: socket.socket) -> bool:
    with contextlib.suppress(ConnectionResetError):
        return client.recv(1) == b"never"
    return True


def test_it_passes_both_ways_and_counts(between: proxy.Proxy) -> None:
    with connect(between) as one, connect(between) as two:
        assert (ask(one, b"one"), ask(two, b"two")) == (b"one", b"two")
        assert (between.connections, between.open) == (2, 2)


def test_a_delay_is_added_each_way_and_goes(between: proxy.Proxy) -> None:
    with connect(between) as client:
        ask(client)
        between.mode("delay", 0.15)
        before = time.monotonic()
        assert ask(client) == b"ping"
        assert time.monotonic() - before >= 0.3
        between.mode("pass")
        assert ask(client) == b"ping"


def test_a_drop_resets_what_is_open_and_what_comes(between: proxy.Proxy) -> None:
    with connect(between) as client:
        ask(client)
        between.mode("drop")
        assert is_reset(client)
    with contextlib.suppress(ConnectionResetError), connect(between) as client:
        assert is_reset(client)
    between.mode("pass")
    with connect(between) as client:
        assert ask(client) == b"ping"


def test_half_closed_it_hears_and_says_nothing_more(between: proxy.Proxy, echo: Echo) -> None:
    with connect(between) as client:
        ask(client)
        between.mode("half_close")
        assert client.recv(1) == b""
        client.sendall(b"pong")
        assert echo.hears(b"pingpong")
        assert client.recv(1) == b""


def test_a_black_hole_swallows_and_is_silent(between: proxy.Proxy, echo: Echo) -> None:
    """Both for what was open and for what comes; afterwards neither is of use, and a new one is."""
    with connect(between) as old:
        ask(old)
        between.mode("black_hole")
        with connect(between) as new:
            old.sendall(b"lost")
            new.sendall(b"lost")
            assert is_silent(old)
            assert is_silent(new)
            assert bytes(echo.heard) == b"ping"
            between.mode("pass")
            assert is_reset(old)
            assert is_reset(new)
    with connect(between) as client:
        assert ask(client) == b"ping"


def test_refusing_it_keeps_its_port(between: proxy.Proxy) -> None:
    with connect(between) as client:
        ask(client)
        between.mode("refuse")
        assert is_reset(client)
    with pytest.raises(ConnectionRefusedError):
        connect(between)
    between.mode("pass")
    with connect(between) as client:
        assert ask(client) == b"ping"


@pytest.mark.parametrize(("when", "heard"), [("before", b""), ("after", b"COMMIT")])
def test_a_connection_is_cut_around_one_request(echo: Echo, when: proxy.Cut, heard: bytes) -> None:
    with (
        proxy.Proxy(echo.address, cut=lambda piece: when if b"COMMIT" in piece else "") as between,
        connect(between) as client,
    ):
        client.sendall(b"COMMIT")
        assert is_reset(client)
        assert bytes(echo.heard) == heard


def test_a_target_that_is_not_there_is_a_reset(echo: Echo) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    with proxy.Proxy(address) as between:
        with contextlib.suppress(ConnectionResetError), connect(between) as client:
            assert is_reset(client)
        assert between.connections == 1


@pytest.mark.parametrize("mode", proxy.MODES)
def test_its_end_leaves_no_thread_no_connection_and_no_port(echo: Echo, mode: str) -> None:
    before = threading.active_count()
    with proxy.Proxy(echo.address) as between:
        client = connect(between)
        ask(client)
        between.mode(mode, 30.0)
        with contextlib.suppress(OSError):
            client.sendall(b"more")
    with client:
        # A piece that was on its way when it was opened may still be read; then there is nothing.
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1024) in {b"", b"more"}
        with pytest.raises(ConnectionRefusedError):
            connect(between)
    assert not [t.name for t in threading.enumerate() if t.name == "proxy"]
    assert (
        threading.active_count() <= before + 1
    )  # the echo's own, for as long as it needs to see the end


def test_another_mode_is_an_error_and_changes_nothing(between: proxy.Proxy) -> None:
    with pytest.raises(ValueError, match="no such mode: sleep"):
        between.mode("sleep")
    with connect(between) as client:
        assert ask(client) == b"ping"

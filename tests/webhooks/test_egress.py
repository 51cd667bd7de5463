"""One try on a real wire: to the address that was judged, ended by its deadline, with nothing of the answer kept."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from bookings.webhooks import egress
from bookings.webhooks.egress import Answer
from tests import certificates
from tests.webhooks import receivers
from tests.webhooks.receivers import Receiver, drip, status

SECONDS = 1.5  # of the fixture
NAME = "hooks.example.com"


def post(url: str) -> Answer:
    return egress.post(url, {"content-type": "application/json"}, b"{}")


def timed(url: str) -> tuple[Answer, float]:
    started = time.monotonic()
    return post(url), time.monotonic() - started


def test_a_status_is_all_that_is_kept(receiver: Receiver) -> None:
    receiver.says["/hook"] = status(500, b"our secrets", x_secret="more of them")
    answer = post(receiver.url())
    assert answer == Answer(500)
    assert "secret" not in repr(answer)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_answer_and_is_not_followed(receiver: Receiver, code: int) -> None:
    receiver.says["/hook"] = status(code, location=receiver.url("/inside"))
    assert post(receiver.url()) == Answer(code)
    assert not post(receiver.url()).is_delivered()
    assert {one.path for one in receiver.got} == {"/hook"}


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_slow_drip_is_cut(receiver: Receiver, head: bytes) -> None:
    receiver.says["/hook"] = drip(head)
    answer, took = timed(receiver.url())
    assert answer in (Answer(error="timeout"), Answer(error="broken_answer"))
    assert took < SECONDS + 1


def test_a_silent_server_and_one_that_is_not_there(receiver: Receiver) -> None:
    receiver.says["/hook"] = receivers.hang
    answer, took = timed(receiver.url())
    assert answer == Answer(error="timeout")
    assert took < SECONDS + 1
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert post(f"http://127.0.0.1:{port}/") == Answer(error="refused_port")


def test_nobody_listens(settings: Settings, receiver: Receiver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        settings.WEBHOOK_PORTS = [closed.getsockname()[1]]
    assert post(f"http://127.0.0.1:{settings.WEBHOOK_PORTS[0]}/") == Answer(error="connect_failed")


def test_of_an_endless_body_little_is_read(receiver: Receiver) -> None:
    is_cut = threading.Event()

    def flood(handler: receivers.Handler) -> None:
        handler.close_connection = True
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
        try:
            for _ in range(100_000):
                handler.wfile.write(b"x" * 1_000)
        except OSError:
            is_cut.set()

    receiver.says["/hook"] = flood
    assert post(receiver.url()) == Answer(200)
    assert is_cut.wait(10)


@pytest.mark.parametrize(
    ("code", "said", "asked"),
    [
        (429, "7", timedelta(seconds=7)),
        (503, "120", timedelta(seconds=120)),
        (503, "99999999999999", timedelta(hours=1)),
        (500, "7", None),
        (200, "7", None),
    ],
)
def test_patience_that_a_server_asks_for(
    receiver: Receiver, code: int, said: str, asked: timedelta | None
) -> None:
    receiver.says["/hook"] = status(code, retry_after=said)
    assert post(receiver.url()) == Answer(code, retry_after=asked)


def test_a_name_that_changes_its_mind_meets_the_address_that_was_judged(
    receiver: Receiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rebinding: the first look-up gives an allowed address, every later one another machine."""
    settings.WEBHOOK_NETWORKS = ["127.0.0.1/32"]
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host != NAME:
            return real(host, *args, **kwargs)
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "127.0.0.2", *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    assert post(f"http://{NAME}:{receiver.port}/hook") == Answer(204)
    assert asked == [NAME]
    assert receiver.got[0].headers["host"] == f"{NAME}:{receiver.port}"
    assert post(f"http://{NAME}:{receiver.port}/hook") == Answer(error="refused_address")
    assert len(receiver.got) == 1


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates.make(tmp_path_factory.mktemp("tls"), NAME)


@pytest.fixture
def secure(
    certificate: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Receiver]:
    """A receiver with TLS, whose name every look-up leads to."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    asked: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _h, *a, **k: real("127.0.0.1", *a, **k))
    with receivers.listening(lambda plain: context.wrap_socket(plain, server_side=True)) as found:
        settings.WEBHOOK_NETWORKS, settings.WEBHOOK_PORTS = ["127.0.0.0/8"], [found.port]
        settings.WEBHOOK_SECONDS = SECONDS
        egress._context.cache_clear()
        yield found
        egress._context.cache_clear()


def test_the_certificate_is_asked_for_the_name_though_the_address_is_pinned(
    secure: Receiver, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert post(f"https://{NAME}:{secure.port}/hook") == Answer(204)
    assert secure.got[0].headers["host"] == f"{NAME}:{secure.port}"
    assert post(f"https://other.example.com:{secure.port}/hook") == Answer(error="tls_failed")
    assert len(secure.got) == 1


def test_a_certificate_that_nobody_vouches_for_is_refused(secure: Receiver) -> None:
    assert post(f"https://{NAME}:{secure.port}/hook") == Answer(error="tls_failed")
    assert secure.got == []

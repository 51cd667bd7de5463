"""A broker behind TLS proves its name, or hears nothing of us: neither a ticket nor the password."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Queue

import config.celery
from bookings.api import rates
from ledger import tickets
from recovery import proxy
from tests import certificates
from tests.trouble import servers

QUEUE = "forward"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates.make(tmp_path_factory.mktemp("tls"), "localhost")


@pytest.fixture(scope="module")
def valkey() -> Iterator[servers.Valkey]:
    with servers.Valkey() as server:
        yield server


@pytest.fixture
def address(valkey: servers.Valkey, certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with proxy.Proxy(valkey.socket, tls=context) as between:
        yield f"rediss://localhost:{between.port}/0"


def publish(url: str) -> None:
    """As the app does it, whose settings it has; to another address."""
    own: Any = config.celery.app
    app = Celery("tls", broker=url, set_as_current=False)
    app.conf.update(
        broker_use_ssl=tickets.verified(url),
        broker_transport_options=own.conf.broker_transport_options,
        task_queues=[Queue(QUEUE)],
    )
    app.send_task("nothing", queue=QUEUE, retry=False)
    app.close()


def test_one_that_nobody_vouches_for_gets_no_ticket(valkey: servers.Valkey, address: str) -> None:
    with pytest.raises(Exception, match="certificate verify failed"):
        publish(address)
    with valkey.client() as client:
        assert client.llen(QUEUE) == 0


def test_one_whose_certificate_we_were_given_does(
    valkey: servers.Valkey, address: str, certificate: Path
) -> None:
    publish(f"{address}?ssl_ca_certs={certificate.parent / 'cert'}")
    with valkey.client() as client:
        assert client.llen(QUEUE) == 1
        client.delete(QUEUE)


def test_of_another_name_it_gets_none(
    valkey: servers.Valkey, address: str, certificate: Path
) -> None:
    other = address.replace("localhost", proxy.HOST)
    with pytest.raises(Exception, match="certificate verify failed"):
        publish(f"{other}?ssl_ca_certs={certificate.parent / 'cert'}")
    with valkey.client() as client:
        assert client.llen(QUEUE) == 0


def test_the_app_asks_for_proof_where_its_address_is_of_tls() -> None:
    assert tickets.verified("redis://broker:6379/0") is False
    assert tickets.verified("rediss://broker:6379/0") == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    own: Any = config.celery.app
    assert own.conf.broker_use_ssl == tickets.verified(own.conf.broker_url)


def test_rates_are_counted_there_only_when_it_proves_its_name(
    address: str, certificate: Path, settings: Any
) -> None:
    for url, is_told in (
        (address, False),
        (f"{address}?ssl_ca_certs={certificate.parent / 'cert'}", True),
    ):
        settings.RATE_URL = url
        assert (rates._Shared().take("amends:rate:tls:one", 5, 1) is not None) == is_told


@pytest.mark.parametrize("vouched", [False, True], ids=["a stranger", "the one we know"])
def test_a_ring_reaches_only_one_that_proves_its_name(
    valkey: servers.Valkey, address: str, certificate: Path, settings: Any, vouched: bool
) -> None:
    known = f"?ssl_ca_certs={certificate.parent / 'cert'}" if vouched else ""
    settings.BROKER_URL = f"{address}{known}"
    bell = tickets._Bell()
    bell.ring(QUEUE)
    assert bell.flush(20)
    with valkey.client() as client:
        assert client.llen(QUEUE) == int(vouched)
        client.delete(QUEUE)

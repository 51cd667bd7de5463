"""A provider that cannot prove its name is told nothing: no byte of a request leaves us."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bookings.providers import http
from ledger import outcomes
from tests import certificates
from tests.providers import conftest
from tests.webhooks import receivers


@contextmanager
def served(certificate: Path, settings: Any) -> Iterator[receivers.Receiver]:
    """A provider that shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with receivers.listening(lambda plain: context.wrap_socket(plain, server_side=True)) as found:
        settings.PAYMENT_URL = settings.TICKET_URL = f"https://localhost:{found.port}"
        yield found


@pytest.fixture
def vouched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """From now on this process trusts the certificate that lies there."""

    def context(**_kwargs: Any) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=tmp_path / "cert")

    monkeypatch.setattr(httpx2, "create_ssl_context", context)
    http.close()
    yield
    http.close()


def test_one_whose_certificate_nobody_vouches_for_is_sent_nothing(
    tmp_path: Path, operation: conftest.Operation, settings: Any
) -> None:
    with served(certificates.make(tmp_path, "localhost"), settings) as provider:
        outcome = operation.do(operation.call)
        assert provider.got == []
    assert isinstance(outcome, outcomes.NotSent)


@pytest.mark.parametrize(("name", "days"), [("localhost", -1), ("other.example", 2)])
def test_one_that_shows_an_expired_certificate_or_anothers_is_sent_nothing(
    tmp_path: Path, operation: conftest.Operation, settings: Any, vouched_for: None, name: str, days: int,
) -> None:  # fmt: skip
    with served(certificates.make(tmp_path, name, days), settings) as provider:
        outcome = operation.do(operation.call)
        assert provider.got == []
    assert isinstance(outcome, outcomes.NotSent)


def test_one_that_proves_its_name_is(
    tmp_path: Path, operation: conftest.Operation, settings: Any, vouched_for: None
) -> None:
    with served(certificates.make(tmp_path, "localhost"), settings) as provider:
        operation.do(operation.call)
        assert len(provider.got) == 1

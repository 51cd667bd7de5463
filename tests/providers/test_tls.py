"""A provider that cannot prove its name is told nothing: no byte of a request leaves us."""

import ssl
from pathlib import Path
from typing import Any

from ledger import outcomes
from tests import certificates
from tests.providers import conftest
from tests.webhooks import receivers


def test_a_provider_whose_certificate_nobody_vouches_for_is_sent_nothing(
    tmp_path: Path, operation: conftest.Operation, settings: Any
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.make(tmp_path, "localhost"))
    with receivers.listening(lambda plain: context.wrap_socket(plain, server_side=True)) as found:
        settings.PAYMENT_URL = settings.TICKET_URL = f"https://localhost:{found.port}"
        outcome = operation.do(operation.call)
        assert found.got == []
    assert isinstance(outcome, outcomes.NotSent)

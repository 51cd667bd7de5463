"""A tenant with bookings, a server of its own, and a sender that is this process's."""

from collections.abc import Iterator

import pytest
from pytest_django.fixtures import Settings

from bookings.webhooks import sending
from tests import hotels
from tests.webhooks import receivers
from tests.webhooks.tenants import Told


@pytest.fixture
def receiver(settings: Settings) -> Iterator[receivers.Receiver]:
    with receivers.listening() as found:
        settings.WEBHOOK_HTTP, settings.WEBHOOK_NETWORKS = True, ["127.0.0.0/8"]
        settings.WEBHOOK_PORTS, settings.WEBHOOK_SECONDS = [found.port], 1.5
        yield found


@pytest.fixture
def small(database: None) -> hotels.SmallHotel:
    return hotels.make(capacity=50)


@pytest.fixture
def told(small: hotels.SmallHotel, receiver: receivers.Receiver) -> Told:
    """A tenant whose endpoint is the receiver's /hook."""
    return Told(small, receiver)


@pytest.fixture
def sender() -> sending.Sender:
    return sending.Sender()

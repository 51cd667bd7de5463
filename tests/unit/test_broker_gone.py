"""A worker outlives a broker that dies with messages in the worker's hands."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import kombu
import pytest
from django.conf import settings
from kombu.transport import redis

from config import broker


@pytest.fixture
def taken() -> Iterator[tuple[Any, Any]]:
    """A channel with one message in hand, and what was taken."""
    name = f"gone-{uuid4().hex}"
    before = redis.Channel.QoS
    broker.outlive()
    try:
        with kombu.Connection(settings.BROKER_URL) as connection:
            channel: Any = connection.channel()
            kombu.Queue(name, channel=channel).declare()
            kombu.Producer(channel).publish({"lane": "forward"}, routing_key=name, retry=False)
            message = channel.basic_get(name)
            assert message is not None
            client = channel.connection.client
            yield channel, message
            channel.connection.client = client  # so that what is left can be closed in order
            channel.queue_delete(name)
    finally:
        redis.Channel.QoS = before


@pytest.mark.parametrize("what", ["ack", "reject", "requeue"])
def test_what_is_done_with_a_message_of_a_dead_connection_raises_nothing(
    taken: tuple[Any, Any], what: str
) -> None:
    channel, message = taken
    # As the transport leaves it when its connection is lost: no pool, no client, and no address to make them from.
    channel._disconnect_pools()
    channel.__dict__.pop("client", None)
    channel.connection.client = None
    getattr(message, what)()
    assert message.acknowledged
    channel.qos.restore_unacked()


def test_of_a_live_one_it_is_taken_off_the_broker(taken: tuple[Any, Any]) -> None:
    channel, message = taken
    assert channel.client.hexists(channel.unacked_key, message.delivery_tag)
    message.ack()
    assert not channel.client.hexists(channel.unacked_key, message.delivery_tag)

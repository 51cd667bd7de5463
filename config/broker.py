"""What a worker does about messages that it took from a broker which has died meanwhile: nothing.

Kept here: a worker outlives its broker. kombu would put such messages back, or acknowledge them, through the channel that is
gone with the connection, meets an attribute of None, and the worker ends of it. Our messages carry nothing: what is not
acknowledged is delivered again one day, and what is lost is rung again by the sweep.

And about messages that are not JSON: they are thrown away. Celery looks for its members in one that kombu leaves as bytes,
and ends of that; it goes back, and the next worker ends of it too.

And about a broker behind TLS: it proves its name. By itself kombu asks for no proof, and takes whoever answers.
"""

import ssl
from typing import Any, override

from kombu import exceptions
from kombu.transport import redis, virtual

JSON = "application/json"


class LostMessages(redis.QoS):
    """Acknowledgements of a channel, for as long as there is one."""

    @override
    def ack(self, delivery_tag: str) -> None:
        if self._is_gone():
            virtual.QoS.ack(self, delivery_tag)
        else:
            super().ack(delivery_tag)

    @override
    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if self._is_gone():
            virtual.QoS.ack(self, delivery_tag)
        else:
            super().reject(delivery_tag, requeue)

    @override
    def restore_unacked(self, client: Any = None) -> None:
        if not self._is_gone():
            super().restore_unacked(client)
        elif self._delivered is not None:
            self._delivered.clear()

    def _is_gone(self) -> bool:
        connection: Any = (
            self.channel.connection
        )  # None once it was closed, whatever kombu declares
        return connection is None or connection.client is None


class OnlyJson(virtual.Message):
    """Of any other kind it cannot be decoded, like one whose body is broken."""

    @override
    def __init__(self, payload: Any, channel: Any = None, **kwargs: Any) -> None:
        super().__init__(payload, channel=channel, **kwargs)
        if self.content_type != JSON:
            refusal = exceptions.ContentDisallowed(f"{self.content_type} is not {JSON}")
            self.errors = [*(self.errors or ()), (type(refusal), refusal, None)]


def verified(url: str) -> dict[str, Any] | None:
    """What Celery is told of TLS. `ssl_...` in the address says more: by whose certificate, for one."""
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED} if url.startswith("rediss://") else None


def outlive() -> None:
    """Use both for every channel of this process."""
    redis.Channel.QoS = LostMessages
    redis.Channel.Message = OnlyJson

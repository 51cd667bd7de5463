"""What a worker does about messages that it took from a broker which has died meanwhile: nothing.

Kept here: a worker outlives its broker. kombu would put such messages back, or acknowledge them, through the channel that is
gone with the connection, meets an attribute of None, and the worker ends of it. Our messages carry nothing: what is not
acknowledged is delivered again one day, and what is lost is rung again by the sweep.
"""

from typing import Any, override

from kombu.transport import redis, virtual


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


def outlive() -> None:
    """Use it for every channel of this process."""
    redis.Channel.QoS = LostMessages

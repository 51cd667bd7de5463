"""What a worker does about messages that it took from a broker which has died meanwhile: nothing.

Kept here: a worker outlives its broker. kombu would put such messages back, or acknowledge them, through the channel that is
gone with the connection, meets an attribute of None, and the worker ends of it. Our messages carry nothing: what is not
acknowledged is delivered again one day, and what is lost is rung again by the sweep.

And about messages that cannot be read: they are thrown away. Whoever may write to the broker may write anything, and Celery
or its transport ends of a body that is not JSON and of one that is no message at all; it goes back, and the next worker ends
of it too.
"""

from typing import Any, override
from uuid import uuid4

from kombu import exceptions
from kombu.transport import redis, virtual
from kombu.utils import json

JSON = "application/json"
NEEDED = ("task", "id")
HEADERS = ("lang", *NEEDED, "root_id", "parent_id", "origin", "argsrepr", "kwargsrepr", "expires")


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
    """Of any other kind it cannot be decoded, like one whose body is broken. One without its parts is of another kind."""

    @override
    def __init__(self, payload: Any, channel: Any = None, **kwargs: Any) -> None:
        try:
            super().__init__(payload, channel=channel, **kwargs)
            self._check()
        except Exception as error:  # noqa: BLE001  whatever is wrong with it, that is its end and not ours
            super().__init__(_unreadable(), channel=channel, **kwargs)
            self.errors = [*(self.errors or ()), (type(error), error, None)]

    def _check(self) -> None:
        if self.content_type != JSON or not isinstance(self.headers, dict):
            raise exceptions.ContentDisallowed(f"{self.content_type} is not {JSON}")
        body = self.decode()  # which is kept for whoever asks next
        if not isinstance(body, list | dict):
            raise exceptions.DecodeError("neither a task nor a command")
        if "task" in self.headers:
            self._keep_only_names()

    def _keep_only_names(self) -> None:
        """Of a task: no time, limit or callback that a message states is any of ours, and Celery ends of some."""
        self.headers = {n: self.headers[n] for n in HEADERS if isinstance(self.headers.get(n), str)}
        if not all(name in self.headers for name in NEEDED):
            raise exceptions.DecodeError("a task without its name or its id")


def _unreadable() -> dict[str, Any]:
    """In the place of what came: it can be acknowledged, and that is all."""
    return {
        "body": "",
        "content-type": "unreadable",
        "properties": {
            "delivery_tag": str(uuid4()),
            "delivery_info": {"exchange": "", "routing_key": ""},
        },
    }


def _loads(text: str) -> Any:
    """As the transport reads what lies in a list of the broker's; what is no JSON is an empty message."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


def outlive() -> None:
    """Use all of this for every channel of this process."""
    redis.Channel.QoS = LostMessages
    redis.Channel.Message = OnlyJson
    setattr(redis, "loads", _loads)  # noqa: B010  which its types do not name

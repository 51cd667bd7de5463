"""Who is sending what, as the wire really has it: the truth against which the engine's own bound is checked.

A sender is a thread that has looked at its lease and may send its request from then on, until it returns or its process
is gone. Nothing here is known to the engine.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID


class Life(Protocol):
    """Of the process whose thread it is: another owner is another process."""

    name: str
    owner: UUID
    is_dead: bool
    is_paused: bool


@dataclass(slots=True)
class Sender:
    """One call under way. `sent_at`: microseconds; when it last looked at its lease, or really sent, if that was later."""

    n: int
    sent_at: int
    life: Life
    owner: UUID
    is_back: bool = False

    def may_send(self) -> bool:
        return not self.is_back and not self.life.is_dead and self.life.owner == self.owner


class Senders:
    def __init__(self) -> None:
        self._all: dict[str, list[Sender]] = {}

    def begin(self, operation: str, n: int, at: int, life: Life) -> Sender:
        sender = Sender(n, at, life, life.owner)
        self._all.setdefault(operation, []).append(sender)
        return sender

    def last_at(self, operation: str, attempts: Collection[int]) -> int | None:
        """When one of these attempts was last sent, or could have been."""
        return max((s.sent_at for s in self._of(operation, attempts)), default=None)

    def may_send(self, operation: str, attempts: Collection[int]) -> bool:
        return any(s.may_send() for s in self._of(operation, attempts))

    def _of(self, operation: str, attempts: Collection[int]) -> list[Sender]:
        return [s for s in self._all.get(operation, []) if s.n in attempts]

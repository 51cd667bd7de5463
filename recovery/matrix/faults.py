"""The faults of a matrix: of what kind, at which reach of which point, and the way in which each strikes.

kill         the process dies, and somebody saw it die (a worker's watcher ends its leases)
vanish       the process dies with its machine: its leases run out
error        an exception; the process lives and forgets what it held
lost-before  the next write is not done and the connection is gone; at a call: the request never arrives
lost-after   the next write is done and its reply is lost; at a call: so is the provider's answer
pause        the process stops beyond its lease, others do what they can, and it goes on
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, override

from django.db import OperationalError, connection, transaction

Kind = Literal["kill", "vanish", "error", "lost-before", "lost-after", "pause"]
KINDS: tuple[Kind, ...] = ("kill", "vanish", "error", "lost-before", "lost-after", "pause")
WIRE = ("call.before", "probe.before", "tombstone.before")
# A write follows these though their names do not end in `.before`.
THEN_WRITES = ("submit.before_insert", "submit.after_insert", "local.after_handlers")
# Reached by the thread that rings, which outlives nobody and owns nothing.
RINGING = ("publish.before", "publish.after")


class Killed(BaseException):
    """The actor's process is gone. Nothing of it may catch this."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Strikes once, at the nth reach of a point."""

    kind: Kind
    point: str
    nth: int = 1

    @override
    def __str__(self) -> str:
        return f"{self.kind} at {self.point}@{self.nth}"


def kinds_at(point: str, *, is_called_out: bool) -> tuple[Kind, ...]:
    """Which faults make sense there. A machine's end differs from a process's only while something is out."""
    if point in RINGING:
        return ("error",)
    found: list[Kind] = ["kill", "error", "pause"]
    if is_called_out:
        found.append("vanish")
    if point in WIRE or point in THEN_WRITES or point.endswith(".before"):
        found += ["lost-before", "lost-after"]
    return tuple(kind for kind in KINDS if kind in found)


class Line:
    """A database connection that can be cut around its next write: an execute wrapper of the thread that acts."""

    def __init__(self) -> None:
        self._loses: Kind | None = None

    def lose(self, kind: Kind) -> None:
        """In a transaction it is the commit, or the reply to it, that is lost; else the next statement."""
        if not connection.in_atomic_block:
            self._loses = kind
        elif kind == "lost-before":
            connection.connection.close()
        else:
            transaction.on_commit(_cut)

    def __call__(self, execute: Callable[..., Any], *statement: Any) -> Any:
        loses, self._loses = self._loses, None
        if loses == "lost-before":
            _cut()
        found = execute(*statement)
        if loses == "lost-after" and not connection.in_atomic_block:
            _cut()
        elif loses == "lost-after":
            transaction.on_commit(_cut)
        return found


def _cut() -> None:
    connection.connection.close()
    raise OperationalError("the connection is gone")

"""The one connection, as the simulation sees it: virtual time goes in with every statement, replies get lost, and after
every commit somebody looks.

A reply lost *before*: the connection dies and nothing was done. Lost *after*: it was done, and nobody was told. Both end as
they do with a real server, in an error without a state, after which the engine replaces its connection.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connection

from recovery.simulation.virtual import VirtualClock

WRITES = ("INSERT", "UPDATE", "DELETE", "ledger_retain")


class Line:
    def __init__(self, clock: VirtualClock, committed: Callable[[], None]) -> None:
        self._clock = clock
        self._committed = committed
        self._djangos_commit = connection.commit
        self._losing = ""
        self._lost: Callable[[], None] = lambda: None
        self._quiet = False

    def lose(self, when: str, lost: Callable[[], None] = lambda: None) -> None:
        """The next write, or the next commit, loses its connection: `lost_before`, `lost_after`, or nothing. `lost` is
        called when it really does.
        """
        self._losing, self._lost = when, lost

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Within the block, every statement of this process passes here."""
        self._djangos_commit = connection.commit
        setattr(connection, "commit", self._commit)  # noqa: B010  an attribute of this one object
        try:
            with connection.execute_wrapper(self):
                yield
        finally:
            delattr(connection, "commit")  # its class has the method: nothing stays on the object

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Within the block, statements are the simulation's own: nobody looks, nothing is lost."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def __call__(
        self,
        execute: Callable[..., Any],
        statement: str,
        params: Any,
        many: bool,  # noqa: FBT001  Django's own signature
        context: dict[str, Any],
    ) -> Any:
        writes = not self._quiet and any(word in statement for word in WRITES)
        if writes and self._losing == "lost_before":
            self._die()
        cursor = context["cursor"]
        if not self._quiet:
            self._clock.tick()
        result = execute(f"SET sim.now = '{self._clock.now()}';{statement}", params, many, context)
        cursor.nextset()
        if writes and not connection.in_atomic_block:
            self._look(cursor.rowcount)
            if self._losing == "lost_after":
                self._die()
        return result

    def _commit(self) -> None:
        """Django's commit of a transaction, with the same fate as a statement's."""
        if self._losing == "lost_before" and not self._quiet:
            self._die()
        self._djangos_commit()
        if self._quiet:
            return
        self._look(1)
        connection.connection.commit()  # the look opened a transaction: Django has not yet left this mode
        if self._losing == "lost_after":
            self._die()

    def _look(self, rowcount: int) -> None:
        if rowcount > 0:
            with self.quiet():
                self._committed()

    def _die(self) -> None:
        self._losing = ""
        self._lost()
        raise OperationalError("the connection is gone")

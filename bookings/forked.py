"""What a process has one of, and no child of a fork shares with it: a client with its connections, a pool of threads."""

import os
import threading
from collections.abc import Callable


class Own[T]:
    """Made when first needed; a forked child makes its own."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: list[T] = []
        self._lock = threading.Lock()
        # The lock is taken around a fork, so that no child inherits it held by a thread that it does not have.
        os.register_at_fork(
            before=self._lock.acquire,
            after_in_parent=self._lock.release,
            after_in_child=self._forget,
        )

    def get(self) -> T:
        with self._lock:
            if not self._held:
                self._held.append(self._make())
            return self._held[0]

    def drop(self) -> T | None:
        """Give up what there is, for the caller to close; the next one to ask makes another."""
        with self._lock:
            return self._held.pop() if self._held else None

    def _forget(self) -> None:
        """In a child: the parent's is not ours to write to, nor to close with a goodbye."""
        self._lock.release()
        self._held.clear()

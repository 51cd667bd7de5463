"""The process's own clock: how much time has passed here, and a wait. It decides nothing that is stored.

It may only make a worker stop earlier; leases and due times are the database's (`ledger_now()`). Everything in the ledger
that measures or waits asks this module, so that a simulation can put virtual time in its place. Pure.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""

    def pause(self, seconds: float) -> None:
        """Let so much time pass."""


class Real:
    """The machine's own."""

    def monotonic(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)


_clock: Clock = Real()


def monotonic() -> float:
    return _clock.monotonic()


def pause(seconds: float) -> None:
    _clock.pause(seconds)


@contextmanager
def replaced(clock: Clock) -> Iterator[None]:
    """Within the block, this process's time is that clock's."""
    global _clock  # noqa: PLW0603  a process has one time
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before

"""Seeing processes end that are not ours to reap, and ending them. A pid alone is never trusted: see `config.guardian`."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Mapping

from config import guardian


class Death:
    """Waits for the end of any of some processes that are not ours to reap."""

    def __init__(self, pids: list[int]) -> None:
        self._fds = {os.pidfd_open(pid): pid for pid in pids}

    def __enter__(self) -> "Death":
        return self

    def __exit__(self, *_exc: object) -> None:
        for fd in self._fds:
            os.close(fd)

    def wait(self, seconds: float) -> float:
        """When the first of them ended, on the monotonic clock."""
        ready, _, _ = select.select(list(self._fds), [], [], seconds)
        assert ready, f"none of {sorted(self._fds.values())} ended within {seconds:g} s"
        return time.monotonic()


def alive(started: Mapping[int, str]) -> list[int]:
    return [pid for pid, start in started.items() if start and guardian.is_alive(pid, start)]


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

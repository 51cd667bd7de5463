"""Small parts for owners of processes: noting an ending signal, ending a process for sure, the end
of its log.

Kept here: every wait has a limit, and only processes that the caller started are ever signalled.
"""

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Self

from config import guardian

POLL_SECONDS = 0.02
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ending:
    """Notes an ending signal instead of dying of it, so that what is half-way through can be taken back in order."""

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in ENDING_SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.number = (
            number  # no lock and no event in here: the thread interrupted may hold the same one
        )

    def check(self) -> None:
        if self.number:
            raise SystemExit(128 + self.number)

    def wait_until(self, is_true: Callable[[], bool], seconds: float) -> bool:
        """Ask until it is true or time is up; an ending signal leaves at once."""
        pause = threading.Event()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            if is_true():
                return True
            pause.wait(POLL_SECONDS)
        return is_true()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """While cleaning up, a second Ctrl-C must not leave the other half behind; all that runs in here has a limit."""
    is_main = (
        threading.current_thread() is threading.main_thread()
    )  # the only one that may set handlers
    numbers = ENDING_SIGNALS if is_main else ()
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def end(process: subprocess.Popen[bytes], number: signal.Signals, seconds: float) -> None:
    """Signal a process that leads its own session; by force when time is up; then end what it left in its group."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(seconds)
    guardian.end_group(process.pid, signal.SIGKILL)


def follow(process: subprocess.Popen[bytes], ending: Ending, seconds: float) -> int:
    """Wait for a process and hand it each ending signal; from the first on, only for so many seconds."""
    left = seconds
    told = False
    while left > 0:
        if ending.number:
            process.send_signal(ending.number)
            ending.number, told = 0, True
        try:
            return process.wait(0.1)
        except subprocess.TimeoutExpired:
            left -= 0.1 if told else 0.0
    process.kill()
    return process.wait(10)


def tail(log: Path, lines: int = 15) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"(no log: {error})"

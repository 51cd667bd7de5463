"""What a fault of the soak leaves to be done some seconds later, while the next fault strikes already.

Kept here: nothing stays undone. `finish` waits for all of it, and raises what went wrong in a thread.
"""

import threading
from collections.abc import Callable


class Later:
    """Deferred acts, each in a thread of its own; at most some seconds each."""

    def __init__(self) -> None:
        self._timers: list[threading.Timer] = []
        self._errors: list[Exception] = []

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, self._run, [act])
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def finish(self) -> None:
        for timer in self._timers:
            timer.join()
        self._timers.clear()
        if self._errors:
            errors, self._errors = self._errors, []
            raise ExceptionGroup("what was left for later", errors)

    def _run(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001  raised by finish, in the thread that waits
            self._errors.append(error)

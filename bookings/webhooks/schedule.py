"""When a delivery is tried again, and how long an endpoint that keeps failing is left alone. Pure.

Doubles from `base` to `cap`, spread over the upper half, so that what failed together does not come back together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

FAILURES_FORGIVEN = 2  # one bad event must not slow down all others
DOUBLINGS_MAX = 40


@dataclass(frozen=True, slots=True)
class Schedule:
    base: timedelta
    cap: timedelta
    draw: Callable[[], float]

    def again_after(self, attempts: int, asked: timedelta | None = None) -> timedelta:
        """After so many attempts; what the server asked for goes before it."""
        assert attempts >= 1, "there is nothing to repeat"
        if asked is not None:
            return asked * (1 + self.draw() / 10)
        doubled: int = 2 ** min(attempts - 1, DOUBLINGS_MAX)
        whole = min(self.cap, self.base * doubled)
        return whole * (0.5 + self.draw() / 2)

    def rest_after(self, failures: int, asked: timedelta | None = None) -> timedelta:
        """How long an endpoint that has failed so often in a row gets nothing at all."""
        if asked is not None:
            return asked
        if failures <= FAILURES_FORGIVEN:
            return timedelta()
        return self.again_after(failures - FAILURES_FORGIVEN)

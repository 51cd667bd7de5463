"""Virtual time: what both the processes' monotonic clocks and `ledger_now()` say within a simulation.

Counted in whole microseconds, so that a history does not depend on how a machine rounds.
"""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
START = 1_000_000_000  # monotonic clocks begin somewhere


class VirtualClock:
    """Goes only when it is told to."""

    def __init__(self) -> None:
        self.micros = START

    def monotonic(self) -> float:
        return self.micros / 1e6

    def pause(self, seconds: float) -> None:
        self.micros += max(0, round(seconds * 1e6))

    def tick(self) -> None:
        """A microsecond: rows that are written one after the other have different times."""
        self.micros += 1

    def now(self) -> datetime:
        """The database's time."""
        return EPOCH + timedelta(microseconds=self.micros)

    def time(self, micros: int) -> datetime:
        """The database's time at one of its microseconds."""
        return EPOCH + timedelta(microseconds=micros)

    def at(self, moment: datetime) -> int:
        """The microsecond of a time of the database's."""
        return round((moment - EPOCH) / timedelta(microseconds=1))

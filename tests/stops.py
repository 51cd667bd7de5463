"""A thread of a test that stands still at a crash point, until the test lets it go on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ledger import crashpoints
from tests import psql


@contextmanager
def at(
    point: str, *, nth: int = 1, before: Callable[[str], object] = str
) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The first thread to come to this point waits there when it comes for the nth time, and does something `before`; (it
    has come, it may go on).
    """
    come, may_go = threading.Event(), threading.Event()
    reached: list[int] = []

    def hold(_point: str) -> None:
        if come.is_set():
            return
        reached.append(threading.get_ident())
        if reached.count(reached[0]) == nth:
            before(point)
            come.set()
            assert may_go.wait(psql.WAIT_SECONDS)

    with crashpoints.armed(point, hold):
        try:
            yield come, may_go
        finally:
            may_go.set()

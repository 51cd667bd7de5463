"""`Prefer: wait=N` (RFC 7240): an answer that comes when there is news, or after N seconds.

The promise: a wait holds no transaction and no lock, looks at the database with growing pauses, and takes a thread of the
process only while WAITERS_MAX allows; whoever comes beyond that is answered at once, so that waiting can never keep
others from being served.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connection
from rest_framework.request import Request

from ledger import clock

SECONDS_MAX = 30
PAUSE_SECONDS, PAUSE_SECONDS_MAX, GROWTH = 0.05, 1.0, 1.5
LENGTH_MAX = 1_024
# An open string reaches to the end: no character is looked at twice.
_PREFERENCE = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))+')
_WAIT = re.compile(r'\s*wait\s*=\s*(?:([0-9]{1,9})|"([0-9]{1,9})")\s*(?:;.*)?', re.IGNORECASE)


class Waiters:
    """How many requests of this process wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Whether there is a place; it is taken for the block."""
        with self._lock:
            has_place = self.count < settings.WAITERS_MAX
            self.count += has_place
        try:
            yield has_place
        finally:
            with self._lock:
                self.count -= has_place


waiters = Waiters()


def wanted(request: Request) -> int:
    """The seconds that a request prefers to wait, at most SECONDS_MAX; 0: none, or what we do not understand."""
    for preference in _PREFERENCE.findall(request.META.get("HTTP_PREFER", "")[:LENGTH_MAX]):
        if found := _WAIT.fullmatch(preference):
            return min(int(found[1] or found[2]), SECONDS_MAX)
    return 0


def until[T](look: Callable[[], T], is_news: Callable[[T], bool], seconds: int) -> tuple[T, bool]:
    """What was seen last: news, or what there was after so many seconds; and whether the wish to wait was granted."""
    found = look()
    if not seconds:
        return found, False
    with waiters.place() as has_place:
        if has_place and not is_news(found):
            found = _await(look, is_news, seconds)
    return found, has_place


def _await[T](look: Callable[[], T], is_news: Callable[[T], bool], seconds: int) -> T:
    deadline, pause = clock.monotonic() + seconds, PAUSE_SECONDS
    while True:
        assert not connection.in_atomic_block, "a wait holds no transaction"
        clock.pause(max(0.0, min(pause, deadline - clock.monotonic())))
        found = look()
        if is_news(found) or clock.monotonic() >= deadline:
            return found
        pause = min(pause * GROWTH, PAUSE_SECONDS_MAX)

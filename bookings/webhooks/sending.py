"""The sweep that tells: fans events out, hands what is due to threads, and stores what came back.

The promise: a slow server holds up nobody, and many of one tenant no other tenant (by what `deliveries.claim` hands out). A
pass ends after its patience, whatever is still out; threads of this process go on, and the next pass stores what they
brought. A pass that dies, or a process, leaves claims whose lease runs out: those tries are made again, under the same ids.
Threads touch no database.
"""

import random
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import timedelta

from django.conf import settings
from django.db import connection

from bookings import forked
from bookings.webhooks import deliveries, egress
from bookings.webhooks.deliveries import Claimed, Tried
from bookings.webhooks.egress import Answer
from bookings.webhooks.schedule import Schedule
from ledger import clock, crashpoints, sql, telemetry

THREADS = 16
FAILING_THREADS = 8  # of them: endpoints that do not answer never take all
EVENTS_PER_TURN = 500
TURNS_MAX = 1_000
STORE_SECONDS = 5.0


class Sender:
    """The tries of one process that are out."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="webhook")
        self._out: dict[Future[Tried], Claimed] = {}

    def run(self, patience: float) -> int:
        """One pass; returns how many tries it stored. It takes `patience` and a turn at the most."""
        assert not connection.in_atomic_block, "nothing is sent in a transaction"
        until, stored = clock.monotonic() + patience, 0
        for _ in range(TURNS_MAX):
            stored += self._turn()
            left = until - clock.monotonic()
            if not self._out or left <= 0:
                break
            wait(self._out, timeout=left, return_when=FIRST_COMPLETED)
        return stored + self._store()

    def _turn(self) -> int:
        crashpoints.reach("webhook.before")
        deliveries.fan_out(EVENTS_PER_TURN)
        stored = self._store()
        for is_failing in (False, True):
            claimed = deliveries.claim(self._free(is_failing=is_failing), failing=is_failing)
            crashpoints.reach("webhook.claimed")
            for one in claimed:
                self._out[self._pool.submit(_try, one)] = one
        return stored

    def _store(self) -> int:
        """Keep what is back. What cannot be stored is made again once its lease is over."""
        back = [future for future in self._out if future.done()]
        for future in back:
            del self._out[future]
        if back:
            _keep([future.result() for future in back])
        return len(back)

    def _free(self, *, is_failing: bool) -> int:
        free = THREADS - len(self._out)
        if not is_failing:
            return free
        failing = sum(one.failures > 0 for one in self._out.values())
        return min(free, FAILING_THREADS - failing)


def sweep() -> int:
    """One pass of this process, for half the time until the next."""
    return _own.get().run(settings.SWEEP_SECONDS / 2)


def _keep(tried: Sequence[Tried]) -> None:
    crashpoints.reach("webhook.sent")

    def write() -> None:
        deliveries.store(tried, _schedule())

    sql.persist(write, clock.monotonic() + STORE_SECONDS)
    crashpoints.reach("webhook.after")


def _try(claimed: Claimed) -> Tried:
    started = clock.monotonic()
    try:
        answer = egress.post(claimed.url, claimed.headers(), claimed.body.encode())
    except Exception as error:  # noqa: BLE001  one bad row is one failed try, and no other's
        telemetry.emit("webhook.failed", level="error", error_class=type(error).__name__)
        answer = Answer(error="internal")
    return Tried(claimed, answer, clock.monotonic() - started)


def _schedule() -> Schedule:
    return Schedule(
        base=timedelta(seconds=settings.WEBHOOK_BACKOFF_SECONDS),
        cap=timedelta(seconds=settings.WEBHOOK_BACKOFF_SECONDS_MAX),
        draw=random.random,
    )


_own = forked.Own(Sender)

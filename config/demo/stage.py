"""What the scenes and the replay play on: the running stack, its two ends over HTTP, the hotel, the
tenants' keys, and the ways to disturb it.

Kept here: only children of a worker that this stack started are ever killed; every wait has a
limit, notices an ending signal, and fails at once when a process of the stack ended by itself.
"""

import io
import json
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from celery import current_app
from celery.utils import nodenames
from django.core.management import call_command

from bookings import hotel_books, hotel_data
from config import processes, programs, supervisor
from config.demo import records, screens
from ledger import saga, sql
from recovery import books, clients

# Short periods, in the order that `manage.py check` asks for: a whole worker that is killed is
# noticed by the end of its leases, and nobody should wait half a minute for that.
PERIODS: Mapping[str, str] = {
    "LEASE_SECONDS": "6",
    "HEARTBEAT_SECONDS": "1.5",
    "SWEEP_SECONDS": "1",
    "CALL_SECONDS_MAX": "4",
    "PROVIDER_CALL_SECONDS": "3",
    "BACKOFF_SECONDS": "0.2",
    "BACKOFF_SECONDS_MAX": "2",
    "RUN_SECONDS": "20",
    "PROVIDER_REQUEST_LIFETIME_SECONDS": "4",
    "PROVIDER_PROBE_LAG_SECONDS": "0.5",
}
INSPECT_SECONDS = 1.0
SHOW_SECONDS = 0.1
RATE = "1000000"  # requests of a key in any minute: the load is ours
DRIVE = "ledger.drive"
END_HOLD = (
    "UPDATE bookings_reservation SET expires_at = ledger_now() WHERE holder = %s AND state = 'held'"
)


class StageError(Exception):
    """Something did not come about in time; says what."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what}: not within {seconds:g} s")


@dataclass(slots=True)
class Stage:
    """`stays` are real ones, for the replay first, then one for each scene that books."""

    stack: supervisor.Stack
    ending: processes.Ending
    api: clients.Api
    sandbox: clients.Sandbox
    screen: screens.Screen
    stays: list[hotel_data.Stay]
    tokens: Mapping[str, str]
    rooms_before: books.Nights
    prefix: str = field(default_factory=lambda: f"demo-{secrets.token_hex(4)}-")
    booked: list[str] = field(default_factory=list)
    killed_workers: int = 0

    def body(self, stay: hotel_data.Stay) -> dict[str, Any]:
        """The request for a stay: the stay only, the price is ours to say."""
        return {
            "hotel": hotel_data.HOTEL,
            "room_type": stay.room_type,
            "arrival": stay.arrival.isoformat(),
            "nights": stay.nights,
        }

    def book(self, key: str, stay: hotel_data.Stay) -> clients.Answer:
        """One submission by the stay's own tenant, under a new key; its booking counts from now on.

        A replayed answer counts too: the first one may have been lost on its way to us.
        """
        answer = self.api.book(self.tokens[stay.tenant], self.prefix + key, self.body(stay))
        if answer.status == HTTPStatus.ACCEPTED:
            self.booked.append(answer.body["id"])
        return answer

    def wait(
        self,
        what: str,
        is_true: Callable[[], bool],
        seconds: float,
        show: Callable[[], None] | None = None,
    ) -> None:
        """Wait until it is true; StageError when it is not in time. `show` is called between looks, and at the end."""
        shown_at = 0.0

        def look() -> bool:
            nonlocal shown_at
            self.fail_with_the_stack()
            if show is not None and time.monotonic() >= shown_at + SHOW_SECONDS:
                show()
                shown_at = time.monotonic()
            return is_true()

        if not self.ending.wait_until(look, seconds):
            raise StageError(what, seconds)
        if show is not None:
            show()

    def fail_with_the_stack(self) -> None:
        """StackError, with the end of its log, if a process of the stack ended by itself."""
        for name, status in self.stack.ended().items():
            raise supervisor.StackError(name, f"ended with status {status}", self.stack.log(name))

    def end_hold(self, booking_id: str) -> None:
        """Let the time of a booking's hold be over; what follows from that is the sweep's to do."""
        job_id, _, _ = records.read_job(booking_id)
        sql.fetch(END_HOLD, [saga.operation_id(job_id, "reserve_room", saga.Direction.FORWARD)])

    def kill_busy_children(self, *, most: int) -> int:
        """SIGKILL up to `most` children of the forward worker that drive jobs now; returns how many."""
        busy = self._busy_children()[:most]
        for pid in busy:
            os.kill(pid, signal.SIGKILL)
        self.killed_workers += len(busy)
        return len(busy)

    def kill_worker(self) -> None:
        """SIGKILL the forward worker as a whole, parent and children at once; start it again without waiting."""
        self.stack.kill(programs.WORKER, signal.SIGKILL, group=True)
        self.stack.wait_ended(programs.WORKER)
        self.killed_workers += 1
        self.stack.start_one(programs.WORKER)

    def _busy_children(self) -> list[int]:
        """Asked of Celery: it knows which child has taken a ticket of the forward lane."""
        name = f"worker@{nodenames.gethostname()}"
        inspect = current_app.control.inspect([name], timeout=INSPECT_SECONDS)
        active = (inspect.active() or {}).get(name, [])
        ours = set(self.stack.children(programs.WORKER))
        return [
            task["worker_pid"]
            for task in active
            if task["name"] == DRIVE and "forward" in task["args"] and task["worker_pid"] in ours
        ]


def environment() -> dict[str, str]:
    """For the processes of the stack."""
    return {**os.environ, **PERIODS}


def open_hotel(stays: int) -> tuple[list[hotel_data.Stay], dict[str, str]]:
    """Load the hotel; return so many stays of it and a fresh API key of each tenant among them."""
    loaded = hotel_books.load()
    found = hotel_data.stays(stays, loaded.shift).stays
    return found, {
        tenant: create_key(tenant, "demo") for tenant in sorted({s.tenant for s in found})
    }


def create_key(tenant: str, note: str) -> str:
    output = io.StringIO()
    call_command(
        "apikey", "create", tenant, "--name", note, "--rate", RATE, "--json", stdout=output
    )
    key: str = json.loads(output.getvalue())["key"]
    return key

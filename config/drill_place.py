"""The place of the drills: the whole stack on this machine, and every way to disturb it that a drill may use.

Kept here: only processes of this stack are signalled; a server that was given by its address is never stopped; and when it
is over, `left_behind` can say whether a process or a port of it is still there.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from celery import current_app
from django.apps import apps
from django.db import Error, InterfaceError, OperationalError, connection, transaction

from bookings.models import Hotel, RoomMonth, RoomNight, RoomType
from config import drill_saga, embedded, programs, small_disk, standby, supervisor
from config.demo import stage
from ledger import saga, sql, submission, tickets, turns
from recovery import clients
from recovery.drills import place
from recovery.drills.place import Periods, Rows

# Ordinary settings, short, in the order that `manage.py check` asks for. Eight slots: work spreads over all children.
PERIODS: Mapping[str, str] = {
    "LEASE_SECONDS": "3",
    "DATABASE_SILENCE_SECONDS": "1",
    "HEARTBEAT_SECONDS": "0.7",
    "SWEEP_SECONDS": "0.5",
    "CALL_SECONDS_MAX": "1.5",
    "PROVIDER_CALL_SECONDS": "1.2",
    "PROVIDER_REQUEST_LIFETIME_SECONDS": "2",
    "PROVIDER_PROBE_LAG_SECONDS": "0.3",
    "PUBLISH_SILENCE_SECONDS": "0.5",
    "BACKOFF_SECONDS": "0.1",
    "BACKOFF_SECONDS_MAX": "1",
    "RUN_SECONDS": "20",
    "TASK_TIME_LIMIT_SECONDS": "30",
    "VISIBILITY_TIMEOUT_SECONDS": "40",
    "SLOTS": "8",
    drill_saga.DRILLS_VARIABLE: "1",
}
TENANTS = ("drill-north", "drill-south", "drill-west")
PROCESSES = (
    *(programs.SANDBOX, programs.API, place.FIRST, place.SECOND),
    *(programs.COMPENSATION, programs.SWEEPS, programs.BEAT),
)
NIGHTS, RATE_MINOR = 2, 10_000
SQL_SECONDS, AGAIN_SECONDS, END_SECONDS = 20.0, 0.1, 15.0
ROOMS_WRONG = """
SELECT t.code, n.night::text, n.taken, count(r.id) FROM bookings_roomnight n
JOIN bookings_roomtype t ON t.id = n.room_type_id JOIN bookings_hotel h ON h.id = t.hotel_id AND h.code = %s
LEFT JOIN bookings_reservation r ON r.room_type_id = t.id AND r.state IN ('held', 'secured')
    AND n.night >= r.arrival AND n.night < r.arrival + r.nights
GROUP BY 1, 2, 3 HAVING n.taken <> count(r.id) OR count(r.id) > 1
"""
END_HOLD = (
    "UPDATE bookings_reservation SET expires_at = ledger_now() WHERE holder = %s AND state = 'held'"
)
HOLD = "SELECT state FROM bookings_reservation WHERE holder = %s"


class DrillPlace:
    """What `recovery.drills.place.Place` asks for, on a `supervisor.Stack`."""

    env: Mapping[str, str] = PERIODS  # of every process

    def __init__(self, stack: supervisor.Stack, wait: Callable[[Callable[[], bool], float], bool],
                 say: Callable[[str], None]) -> None:  # fmt: skip
        self.stack, self.wait_until, self.say = stack, wait, say
        self.api = clients.Api(stack.api_url)
        self.sandbox = clients.Sandbox(stack.sandbox_url)
        self.workdir: Path = stack.workdir
        self.own_servers = _own_servers()
        found = {name: float(value) for name, value in PERIODS.items()}
        self.periods = Periods(
            lease=found["LEASE_SECONDS"],
            sweep=found["SWEEP_SECONDS"],
            call=found["CALL_SECONDS_MAX"],
            backoff_max=found["BACKOFF_SECONDS_MAX"],
            request_lifetime=found["PROVIDER_REQUEST_LIFETIME_SECONDS"],
        )
        self._tokens = [stage.create_key(tenant, "drill") for tenant in TENANTS]
        self._hotel = Hotel.objects.create(
            code=f"DRILL-{uuid4().hex[:8]}", name="Drill", timezone="UTC", currency="EUR"
        )
        self._rooms = 0
        self._halted: set[str] = set()
        self._killed: set[str] = set()

    def urls(self) -> list[str]:
        """Where somebody listens while it runs."""
        return [self.stack.api_url, self.stack.sandbox_url]

    def close(self) -> None:
        self.api.__exit__()
        self.sandbox.__exit__()
        connection.close()

    # --- processes ---------------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        for name in names:
            if name in self.stack.ended() or name not in self.stack.names():
                self.stack.start_one(name, env=self.env_of(name))
                self._killed.discard(name)
        for name in names:
            self.stack.wait_ready(name)

    def env_of(self, _name: str) -> Mapping[str, str]:
        """What this process is given besides, whenever it is started."""
        return {}

    def spawn(self, name: str, env: Mapping[str, str], children: int) -> None:
        self.stack.start_one(name, env=env, children=children)

    def is_ready(self, name: str) -> bool:
        return self.stack.is_ready(name)

    def kill(self, name: str, number: signal.Signals, *, group: bool = False) -> None:
        """With `group`, its children and its watcher too, as the loss of a machine would."""
        if name not in self.stack.names() or name in self.stack.ended():
            return
        others = supervisor.children_of(self.stack.pid(name)) if group else []
        self.stack.kill(name, number, group=group)
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGKILL:
            self._killed.add(name)
            self.stack.wait_ended(name)

    def end(self, *names: str) -> None:
        """TERM, once: a second one would be a cold stop. By force when that takes too long."""
        known = [name for name in names if name in self.stack.names()]
        for name in known:
            self.stack.kill(name, signal.SIGTERM)
        for name in known:
            with contextlib.suppress(supervisor.StackError):
                self.stack.wait_ended(name, END_SECONDS)
            self.stack.stop(name)

    def children(self, name: str) -> list[int]:
        if name not in self.stack.names() or name in self.stack.ended():
            return []
        return self.stack.children(name)

    def signal_child(self, pid: int, number: signal.Signals) -> bool:
        """False if it is no child of this stack's any more."""
        if supervisor.parent_of(pid) not in {self.stack.pid(name) for name in self.stack.names()}:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def ended_unasked(self) -> list[str]:
        """Processes that ended though no drill killed them."""
        return [
            f"{name} ended by itself with status {status}"
            for name, status in self.stack.ended().items()
            if name not in self._killed
        ]

    def make_whole(self) -> None:
        """Every server and process up, nobody stopped, nobody extra."""
        for name in list(self._halted):
            self.start_server(name)
        extra = [name for name in self.stack.names() if name not in PROCESSES]
        self.end(*extra)
        for name in PROCESSES:
            for pid in self.children(name):
                self.signal_child(pid, signal.SIGCONT)
        self.start(*PROCESSES)

    def halt_server(self, name: str, number: signal.Signals) -> None:
        connection.close()
        self._halted.add(name)
        embedded.own[0].halt(name, number)

    def start_server(self, name: str) -> None:
        embedded.own[0].start_again(name)
        self._halted.discard(name)

    def small_disk(self) -> small_disk.SmallDisk:
        connection.close()
        return small_disk.SmallDisk(embedded.own[0])

    def standby(self) -> standby.Standby:
        return standby.Standby(embedded.own[0])

    # --- the database and the broker ---------------------------------------------------------------------------------

    def sql(
        self, statement: str, params: Sequence[Any] | dict[str, Any] = (), *, role: str = ""
    ) -> Rows:
        """One statement as the owner, or as another role; repeated on a new connection where the server went away."""
        until = time.monotonic() + SQL_SECONDS
        while True:
            try:
                return _as_role(role, statement, params) if role else sql.fetch(statement, params)
            except (OperationalError, InterfaceError):
                sql.replace_connection()
                if time.monotonic() > until:
                    raise
            threading.Event().wait(AGAIN_SECONDS)

    def deliver(self, lane: str, times: int) -> None:
        """Publish one and the same ticket so many times."""
        ticket = str(uuid4())
        with current_app.connection_for_write() as broker:
            for _ in range(times):
                current_app.send_task(
                    tickets.TASK, (lane,), queue=lane, task_id=ticket, connection=broker
                )

    def flush_broker(self) -> None:
        """FLUSHALL of our own Valkey; of one that was given, only the database that is ours."""
        with current_app.connection_for_write() as broker:
            client: Any = broker.default_channel.client  # type: ignore[attr-defined]  # Redis's
            client.flushall() if place.BROKER in self.own_servers else client.flushdb()

    def is_silent(self) -> bool:
        with current_app.connection_for_write() as broker:
            client: Any = broker.default_channel.client  # type: ignore[attr-defined]  # Redis's
            lanes = sum(client.llen(lane) for lane in ("forward", "compensation"))
            return bool(lanes + client.hlen("unacked") == 0)

    # --- what a tenant, or a member of staff, can do -----------------------------------------------------------------

    def tokens(self) -> Sequence[str]:
        return self._tokens

    def stays(self, count: int) -> list[Mapping[str, Any]]:
        """So many stays, each in a room of its own and so at a price of its own."""
        first = self._rooms
        self._rooms += count
        rooms = [RoomType(hotel=self._hotel, code=f"R{n}") for n in range(first, first + count)]
        arrival = self.sql("SELECT (ledger_now() + interval '30 days')::date")[0][0]
        nights = [arrival + timedelta(days=n) for n in range(NIGHTS)]
        with transaction.atomic():
            RoomType.objects.bulk_create(rooms)
            RoomNight.objects.bulk_create(
                RoomNight(room_type=room, night=night, capacity=1)
                for room in rooms
                for night in nights
            )
            RoomMonth.objects.bulk_create(
                RoomMonth(room_type=room, month=month, rate_minor=RATE_MINOR + n, capacity=1)
                for n, room in enumerate(rooms, first)
                for month in {night.replace(day=1) for night in nights}
            )
        stay = {"hotel": self._hotel.code, "arrival": arrival.isoformat(), "nights": NIGHTS}
        return [{**stay, "room_type": room.code} for room in rooms]

    def cancel(self, job: UUID) -> bool:
        """As staff would; there is no route of the API for it yet. False where it came too late, or went wrong."""
        try:
            return turns.cancel(job, by="drill", reason="the client changed its mind")
        except Error:
            return False
        finally:
            connection.close()  # of whichever thread this is

    def end_hold(self, job: UUID) -> None:
        self.sql(END_HOLD, [_holder(job)])

    def has_hold_ended(self, job: UUID) -> bool:
        return self.sql(HOLD, [_holder(job)]) == [("expired",)]

    def submit_poison(self, key: str) -> UUID:
        tenant = apps.get_model("ledger", "Tenant").objects.get(name=TENANTS[0])
        found = submission.submit(
            tenant_id=tenant.id,
            key=key,
            saga=drill_saga.trip,
            request={"key": key},
            input={"dies_at": "call"},
        )
        return found.job_id

    def room_problems(self) -> list[str]:
        """Each night is taken as often as it is held or secured, and by one booking at most."""
        return [
            f"room {code}, night {night}: {taken} taken, {held} held or secured"
            for code, night, taken, held in self.sql(ROOMS_WRONG, [self._hotel.code])
        ]


def _own_servers() -> frozenset[str]:
    """The servers that are ours to stop, and what else this machine lets us do to them."""
    if not embedded.own:
        return frozenset()
    own = embedded.own[0]
    return own.names() | ({place.MOUNT} if small_disk.can_be_had(own.directory) else set())


def left_behind(workdir: Path) -> list[str]:
    """Processes of a stack that are still alive: each was started with its directory in the environment."""
    marker, found = str(workdir).encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = marker in (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if is_ours:
            found.append(f"process {entry.name} is still there: {command[:120]}")
    return found


def still_listening(place: DrillPlace) -> list[str]:
    """Ports of the stack that somebody answers at."""
    found = []
    for url in place.urls():
        address = urlsplit(url)
        with socket.socket() as line:
            if line.connect_ex((str(address.hostname), int(address.port or 0))) == 0:
                found.append(f"port {address.port} is still open")
    return found


def _holder(job: UUID) -> str:
    return saga.operation_id(job, "reserve_room", saga.Direction.FORWARD)


def _as_role(role: str, statement: str, params: Any) -> Rows:
    sql.fetch(f"SET ROLE {role}")
    try:
        return sql.fetch(statement, params)
    finally:
        sql.fetch("RESET ROLE")

"""The stack as real processes over the test database and a broker database of its own, and what a test asks of it.

Every wait polls a condition with a deadline; nothing sleeps for a time that was guessed. The witness of every test is the
sandbox's own books, compared with the receipts: `assert_books_agree`.
"""

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import kombu

import config.celery
from bookings.models import ApiKey, Booking
from config import guardian, processes, programs, supervisor
from ledger import models, saga, tickets
from tests import hotels
from tests.acceptance import addresses, deaths

# Ordinary settings at test scale; `manage.py check` holds their order.
LEASE_SECONDS, SWEEP_SECONDS = 3.0, 0.5
SCALE = {
    "LEASE_SECONDS": str(LEASE_SECONDS),
    "DATABASE_SILENCE_SECONDS": "1",
    "HEARTBEAT_SECONDS": "0.7",
    "SWEEP_SECONDS": str(SWEEP_SECONDS),
    "CALL_SECONDS_MAX": "1.5",
    "PROVIDER_CALL_SECONDS": "1.2",
    "PUBLISH_SILENCE_SECONDS": "0.5",
    "BACKOFF_SECONDS": "0.1",
    "BACKOFF_SECONDS_MAX": "1",
    "RUN_SECONDS": "20",
    "TASK_TIME_LIMIT_SECONDS": "30",
    "VISIBILITY_TIMEOUT_SECONDS": "40",
    "LOG_LEVEL": "INFO",
}
CAPTURE, SECURE, TICKET = "capture_payment", "secure_room", "issue_ticket"
STEPS = ["reserve_room", CAPTURE, SECURE, TICKET]
REMOTE = (CAPTURE, TICKET)
POLL_SECONDS = 0.01
# How a provider treats a request whose sender is killed: it arrives all the same, soon, or when it is released.
SOON: dict[str, Any] = {"do": "delay", "seconds": 1.0}
LATE: dict[str, Any] = {"do": "hold", "answer": True, "seconds": 60.0}


def until[T](ask: Callable[[], T], seconds: float, explain: Callable[[], str] = str) -> T:
    """Ask until the answer is true; returns it. AssertionError, with an explanation, when time is up."""
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {explain()}")
        pause.wait(POLL_SECONDS)
    return answer


class Agent:
    """One tenant with a key, and a hotel of its own to book."""

    def __init__(self, live: "Live", capacity: int) -> None:
        self.tenant = hotels.tenant(f"agent-{uuid4().hex[:12]}")
        _, key = ApiKey.objects.create_key(
            tenant=self.tenant, name="acceptance", rate_per_minute=1_000_000
        )
        self.small = hotels.make(code=f"H{uuid4().hex[:12]}", capacity=capacity)
        self._live, self.headers = live, {"Authorization": f"Bearer {key}"}

    def post(self, key: str, **stay: int) -> httpx2.Response:
        headers = {**self.headers, "Idempotency-Key": key}
        body = self.small.stay(**stay)
        return self._live.api.post("/v1/bookings", json=body, headers=headers)

    def get(self, booking: UUID) -> dict[str, Any]:
        answer = self._live.api.get(f"/v1/bookings/{booking}", headers=self.headers)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def book(self, key: str = "", **stay: int) -> UUID:
        """Post a booking that must be accepted; returns its id."""
        answer = self.post(key or uuid4().hex, **stay)
        assert answer.status_code == 202, answer.text
        return UUID(answer.json()["id"])

    def book_in_bulk(self, key: str) -> UUID:
        """The same by a bulk of one."""
        item = {**self.small.stay(), "idempotency_key": key}
        sent = {"bookings": [item]}
        answer = self._live.api.post("/v1/bookings/bulk", json=sent, headers=self.headers)
        assert answer.status_code == 200, answer.text
        (found,) = answer.json()["items"]
        assert found["status"] == 202, found
        return UUID(found["booking"]["id"])

    def book_many(self, count: int) -> list[UUID]:
        return [self.book() for _ in range(count)]


class Live:
    """The processes of one module's stack; start what is needed by name."""

    def __init__(self, workdir: Path, broker_number: int) -> None:
        self.broker_url = addresses.broker_url(broker_number)
        self.broker = addresses.broker(broker_number)
        self.broker.flushdb()
        given = {key: value for key, value in os.environ.items() if key not in programs.ADDRESSES}
        places = {"DATABASE_URL": addresses.database_url(), "BROKER_URL": self.broker_url}
        self.stack = supervisor.Stack({**given, **SCALE, **places}, workdir)
        self.api = httpx2.Client(base_url=self.stack.api_url, trust_env=False, timeout=10)
        self.sandbox = httpx2.Client(trust_env=False, timeout=10)

    def __enter__(self) -> "Live":
        return self

    def __exit__(self, *_exc: object) -> None:
        started = self.started(*programs.START_ORDER)
        self.api.close()
        self.sandbox.close()
        for name in (*programs.WORKERS, programs.BEAT):
            self.end(name)  # an orderly end takes Celery 3 s, and is the subject of `test_sigterm`
        self.stack.stop_all()
        self.broker.flushdb()
        self.broker.close()
        until(lambda: not deaths.alive(started), 5, lambda: f"left behind: {deaths.alive(started)}")

    # --- processes ---------------------------------------------------------------------------------------------------

    def spawn(
        self, *names: str, concurrency: int = 2, env: Mapping[str, str] | None = None
    ) -> None:
        """Start processes without waiting for them; `env` is theirs only."""
        inner: Any = self.stack
        before, inner._place.concurrency = inner._env, concurrency
        inner._env = {**before, **(env or {})}
        try:
            for name in names:
                self.stack.start_one(name)
        finally:
            inner._env = before

    def start(
        self, *names: str, concurrency: int = 2, env: Mapping[str, str] | None = None
    ) -> None:
        """Start processes and wait until they are ready; the sandbox first, because the others are told its port."""
        self.spawn(*names, concurrency=concurrency, env=env)
        for name in names:
            self.stack.wait_ready(name)
        if programs.SANDBOX in names:
            self.sandbox.base_url = httpx2.URL(self.stack.sandbox_url)

    def end(self, name: str) -> None:
        """End a process at once with all that belongs to it, whether it runs or not."""
        with contextlib.suppress(KeyError):
            self.kill_all_of(name)
            self.stack.stop(name)

    def kill_all_of(self, name: str) -> None:
        """By SIGKILL: a worker, its pool and its watcher."""
        watchers = [pid for pid in self._children(name) if _is_watcher(pid)]
        self.stack.kill(name, group=True)
        deaths.signal_all(watchers, signal.SIGKILL)

    def started(self, *names: str) -> dict[int, str]:
        """The pids of these processes and of their children, with the time when each was started."""
        found: list[int] = []
        for name in names:
            with contextlib.suppress(KeyError):
                found += [self.stack.pid(name), *self._children(name)]
        return {pid: guardian.start_time(pid) for pid in found}

    def pool(self, name: str = programs.WORKER) -> list[int]:
        """The pids of a worker's pool: its children but the watcher."""
        return [pid for pid in self._children(name) if not _is_watcher(pid)]

    def watcher(self, name: str = programs.WORKER) -> int:
        return next(pid for pid in self._children(name) if _is_watcher(pid))

    def agent(self, capacity: int = 50) -> Agent:
        return Agent(self, capacity)

    def deliver(self, lane: str, times: int) -> None:
        """Publish one and the same ticket so many times."""
        ticket = str(uuid4())
        with kombu.Connection(self.broker_url) as broker:
            for _ in range(times):
                config.celery.app.send_task(
                    tickets.TASK, (lane,), queue=lane, task_id=ticket, connection=broker
                )

    def is_silent(self, lane: str = "forward") -> bool:
        """No ticket of the lane is queued, and none is in the hands of a worker."""
        return self.broker.llen(lane) == 0 and self.broker.hlen("unacked") == 0

    def _children(self, name: str) -> list[int]:
        return supervisor.children_of(self.stack.pid(name))

    # --- the sandbox -------------------------------------------------------------------------------------------------

    def control(self, path: str, **body: Any) -> None:
        answer = self.sandbox.post(f"/control/{path}", json=body)
        assert answer.status_code == 200, answer.text

    def rule(self, do: str, **rule: Any) -> None:
        self.control("rules", rules=[{"do": do, **rule}], replace=False)

    def be_honest(self) -> None:
        self.control("rules", rules=[])
        self.control("latency", mean_seconds=0)

    def effects(self, booking: UUID) -> list[dict[str, Any]]:
        return list(self._books("effects", booking))

    def requests(self, booking: UUID) -> list[dict[str, Any]]:
        return list(self._books("requests", booking))

    def kinds(self, booking: UUID) -> list[str]:
        return [effect["kind"] for effect in self.effects(booking)]

    def net(self, bookings: list[UUID]) -> int:
        """What the provider's own books say was taken for these bookings, less what was given back."""
        signs = {"capture": 1, "refund": -1, "ticket": 0}
        found = [effect for booking in bookings for effect in self.effects(booking)]
        return sum(signs[e["kind"]] * (e["amount_minor"] or 0) for e in found)

    def _books(self, table: str, booking: UUID) -> Any:
        return self.sandbox.get(f"/books/{table}", params={"subject": str(booking)}).json()

    # --- the ledger --------------------------------------------------------------------------------------------------

    def job(self, booking: UUID) -> models.Job:
        return models.Job.objects.get(id=job_of(booking))

    def ended(self, bookings: list[UUID], state: str, seconds: float = 15.0) -> None:
        """Wait until each of these is in that state."""
        self.ended_jobs([job_of(booking) for booking in bookings], state, seconds)

    def ended_jobs(self, jobs: list[UUID], state: str, seconds: float = 15.0) -> None:
        def states() -> Counter[str]:
            return Counter(models.Job.objects.filter(id__in=jobs).values_list("state", flat=True))

        until(lambda: states() == {state: len(jobs)}, seconds, lambda: self._explain(states()))

    def assert_each_once(self, bookings: list[UUID], seconds: float) -> None:
        """They are confirmed in time, and each was paid and ticketed once."""
        self.ended(bookings, "confirmed", seconds)
        assert {tuple(self.kinds(booking)) for booking in bookings} == {("capture", "ticket")}
        self.assert_books_agree(bookings)

    def assert_books_agree(self, bookings: list[UUID]) -> None:
        """Each operation has at most one effect; its effects are those that the receipts say, under the same reference."""
        for booking in bookings:
            job = job_of(booking)
            effects = [(e["operation_id"], e["id"]) for e in self.effects(booking)]
            assert len(effects) == len(dict(effects)), f"an operation had two effects: {effects}"
            receipts = models.Receipt.objects.filter(
                job_id=job, outcome="confirmed", step__in=REMOTE
            )
            believed = {
                saga.operation_id(job, r.step, saga.Direction(r.direction)): r.evidence["ref"]
                for r in receipts
            }
            assert dict(effects) == believed

    def _explain(self, found: object) -> str:
        logs = sorted(self.stack.workdir.glob("*.log"))
        ends = [f"--- {log.name}\n{processes.tail(log, 12)}" for log in logs]
        parked = list(models.Job.objects.filter(state="parked").values_list("parked_detail"))
        return "\n".join([str(found), f"parked: {parked}", *ends])


def job_of(booking: UUID) -> UUID:
    return UUID(str(Booking.objects.values_list("job_id", flat=True).get(id=booking)))


def attempts(booking: UUID) -> dict[tuple[str, str], int]:
    """How many attempts each operation had."""
    rows = models.Attempt.objects.filter(job_id=job_of(booking)).values_list("step", "direction")
    return dict(Counter(rows))


def outcomes(booking: UUID) -> list[tuple[str, str, str]]:
    """(step, direction, outcome) of every receipt in journal order."""
    rows = models.Receipt.objects.filter(job_id=job_of(booking)).order_by("id")
    return list(rows.values_list("step", "direction", "outcome"))


def in_flight(bookings: list[UUID], step: str) -> int:
    """Attempts of a step that have no receipt yet."""
    jobs = [job_of(booking) for booking in bookings]
    rows = {"job_id__in": jobs, "step": step}
    return (
        models.Attempt.objects.filter(**rows).count()
        - models.Receipt.objects.filter(**rows).count()
    )


def _is_watcher(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"config.watcher" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False

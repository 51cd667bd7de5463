"""A job that takes all the memory there is: it parks, and the bookings beside it end, each with one charge.

The promise holds whichever way memory ends. The kernel kills the child that took it (a memory limit of the control group,
as a container has one, around the whole worker): to everybody else that is a death like any other, and three alone park the
job. Or the child is refused more (RLIMIT_AS): then its step meets a MemoryError, fails alone, and nobody dies.
"""

import contextlib
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from config import programs
from ledger import models
from ledger.states import ParkedReason
from tests import factories
from tests.acceptance import live as acceptance
from tests.acceptance.live import Live
from tests.trouble import hungry

pytestmark = pytest.mark.timeout(120)
ROOM_BYTES = (
    256 << 20
)  # beyond what is taken when the limit begins: whoever takes that is by far the biggest
CHILDREN = 2
BESIDE = 12
DEATHS_MAX = 5  # two in company, three alone
SECONDS = 60.0
V1 = Path("/sys/fs/cgroup/memory")
# The budget of a step must outlast the bookings beside it.
PATIENCE = {"BACKOFF_SECONDS": "0.5", "BACKOFF_SECONDS_MAX": "2"}
FAILED_AS = {"local": "not_sent", "call": "unknown"}


@pytest.fixture(scope="module")
def stack(live: Live) -> Live:
    """With workers that know the hungry saga."""
    live.start(programs.SANDBOX)
    live.start(programs.API, programs.SWEEPS, programs.BEAT)
    for name in (programs.WORKER, programs.COMPENSATION):
        start(live, name)
    return live


@pytest.fixture
def running(stack: Live) -> Iterator[Live]:
    yield stack
    stack.be_honest()


def start(live: Live, name: str) -> None:
    inner: Any = live.stack
    command = [*programs.command(name, inner._place), "-I", hungry.__name__]
    inner._running[name] = inner._spawn(name, command, env=PATIENCE)
    live.stack.wait_ready(name)


def group_of_ours() -> Path:
    """The control group of this process that limits memory."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return V1 / path.lstrip("/")
    pytest.skip("no control group of this machine limits memory (version 1)")


class Limit:
    """A control group below ours: a whole worker has so much more memory. It is started again where it ends."""

    def __init__(self, live: Live) -> None:
        self.group = group_of_ours() / f"amends-{uuid4().hex[:8]}"
        self.restarts = 0
        self._live = live

    def __enter__(self) -> "Limit":
        try:
            self.group.mkdir()
        except OSError as error:
            pytest.skip(f"this user cannot make a control group: {error}")
        (self.group / "memory.limit_in_bytes").write_text(str(ROOM_BYTES))
        self._take_in()
        return self

    def __exit__(self, *_exc: object) -> None:
        for pid in (self.group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                (self.group.parent / "cgroup.procs").write_text(pid)
        self.group.rmdir()

    def deaths(self) -> int:
        """How many processes the kernel has killed for memory."""
        told = (self.group / "memory.oom_control").read_text().splitlines()
        return int(dict(line.split() for line in told)["oom_kill"])

    def keep_up(self) -> bool:
        """As whoever supervises it: the kernel may take the parent too, while a child's memory is not back yet."""
        if programs.WORKER in self._live.stack.ended():
            start(self._live, programs.WORKER)
            self._take_in()
            self.restarts += 1
        return True

    def _take_in(self) -> None:
        worker = self._live.stack.pid(programs.WORKER)
        for pid in (worker, self._live.watcher(), *children(self._live)):
            (self.group / "cgroup.procs").write_text(str(pid))


@contextmanager
def refused_more(pids: list[int], room: int) -> Iterator[None]:
    """Within the block, each of these gets so much more address space, and no more."""
    before = {pid: resource.prlimit(pid, resource.RLIMIT_AS) for pid in pids}
    for pid, (_, hard) in before.items():
        taken = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (taken + room, hard))
    try:
        yield
    finally:
        for pid, limits in before.items():
            resource.prlimit(pid, resource.RLIMIT_AS, limits)


def children(live: Live) -> list[int]:
    """All of them: the place of one that died in an earlier test may still be empty."""
    acceptance.until(lambda: len(live.pool()) == CHILDREN, SECONDS)
    return live.pool()


def job(id_: UUID) -> models.Job:
    return models.Job.objects.get(id=id_)


def serve(live: Live, at: str) -> tuple[UUID, list[UUID]]:
    """The hungry job, and bookings beside it whose captures are under way when it gets its turn."""
    live.rule("delay", match="capture", seconds=0.3)
    agent = live.agent()
    bookings = agent.book_many(BESIDE // 2)
    eater = factories.submit(hungry.meal, {"hungry_at": at})
    bookings += agent.book_many(BESIDE // 2)
    return eater, bookings


def assert_each_charged_once(live: Live, bookings: list[UUID]) -> None:
    live.ended(bookings, "confirmed", SECONDS)
    assert {tuple(live.kinds(booking)) for booking in bookings} == {("capture", "ticket")}
    assert live.net(bookings) == 20_000 * len(bookings)
    live.assert_books_agree(bookings)


def test_the_kernel_kills_whoever_takes_it_all_and_only_that_job_parks(running: Live) -> None:
    with Limit(running) as limit:
        eater, bookings = serve(running, "local")
        ids = [eater, *(acceptance.job_of(booking) for booking in bookings)]
        at_rest = models.Job.objects.filter(id__in=ids, state__in=["parked", "confirmed"])
        acceptance.until(
            lambda: limit.keep_up() and at_rest.count() == len(ids),
            SECONDS,
            lambda: running._explain(job(eater)),
        )
        deaths = limit.deaths()
    print(f"{deaths} killed for memory, the worker {limit.restarts} times")  # noqa: T201  a measured figure
    found = job(eater)
    assert (found.state, found.parked_reason) == ("parked", ParkedReason.WORKER_LOST)
    assert found.strikes == 3
    assert 3 <= found.leases_lost <= min(deaths, DEATHS_MAX)
    assert_each_charged_once(running, bookings)


@pytest.mark.parametrize("at", ["local", "call"])
def test_a_step_that_is_refused_memory_fails_alone_and_nobody_dies(running: Live, at: str) -> None:
    all_there = children(running)
    with refused_more(all_there, ROOM_BYTES):
        eater, bookings = serve(running, at)
        assert_each_charged_once(running, bookings)
        failed = models.Receipt.objects.filter(job_id=eater, step=at)
        acceptance.until(failed.exists, SECONDS, lambda: running._explain(job(eater)))
    first = failed.order_by("id")[0]
    assert (first.outcome, first.evidence["reason"]) == (FAILED_AS[at], "MemoryError")
    running.ended_jobs([eater], "confirmed", SECONDS)  # once there is enough for it
    assert job(eater).leases_lost == 0
    assert running.pool() == all_there, "nobody died of it"

"""The previous build and this one on one database, side by side, and back again: jobs that both had in hand end once.

The previous build is real where there is a history: the code of the last commit before checkpoints had formats, run from
a tree of its own against this build's database. It is also this code with an older setting, which tells by the formats
who wrote what. Builds swap lanes in the middle of the work, workers are killed, and in the end the previous one is alone.
"""

import io
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import kombu
import pytest
from django.core.management import call_command
from django.test import override_settings

import config.celery
from config import programs, supervisor
from ledger import checkpoints, models, sql, tickets
from recovery.invariants import check
from tests import conftest
from tests.acceptance.live import Live, job_of, until

pytestmark = pytest.mark.timeout(240)
ROOT = supervisor.ROOT
DRIVERS = (programs.WORKER, programs.COMPENSATION)
AROUND = (programs.API, programs.SWEEPS, programs.BEAT)
SECONDS = 60.0
PARTS = 3
REFUSED = 0.4  # of each part: they go back
BOTH_PERCENT = 10
WALLED = "SELECT relname FROM pg_class WHERE relrowsecurity"


@dataclass
class Phase:
    """From when on which build drove which direction."""

    since: datetime
    forward: str
    backward: str

    def builds(self) -> dict[str, str]:
        return {"forward": self.forward, "backward": self.backward}


@dataclass
class Builds:
    """Two stacks, of this build and of the previous one, over one database, broker and sandbox."""

    this: Live
    previous: Live
    tree: Path
    older: dict[str, str]
    ours: dict[str, str]
    reads: list[int]
    jobs: int
    phases: list[Phase] = field(default_factory=list)

    def start(self, build: str, *names: str) -> None:
        if build == "this":
            self.this.start(*names, env={"BUILD": "this", **self.ours})
            return
        url = self.this.stack.sandbox_url
        with code_of(self.tree):
            self.previous.start(
                *names,
                env={"PAYMENT_URL": url, "TICKET_URL": url, "BUILD": "previous", **self.older},
            )

    def end(self, *names: str) -> None:
        """Whoever runs them, at once: what was on the wire is unknown to whoever comes next."""
        for name in names:
            self.this.end(name)
            self.previous.end(name)

    def drive(self, *, forward: str, backward: str) -> None:
        """From now on: the workers that there were are gone before the next ones come."""
        self.end(*DRIVERS)
        self.phases.append(Phase(sql.fetch("SELECT ledger_now()")[0][0], forward, backward))
        self.start(forward, programs.WORKER)
        self.start(backward, programs.COMPENSATION)

    def touched(self, job: UUID) -> set[str]:
        """The builds that wrote receipts of this job."""
        found = set()
        for receipt in models.Receipt.objects.filter(job_id=job):
            phase = [p for p in self.phases if p.since <= receipt.at][-1]
            found.add(phase.builds()[receipt.direction])
        return found


@contextmanager
def code_of(tree: Path) -> Iterator[None]:
    """Processes that are started within run the code of this tree."""
    supervisor.ROOT = tree
    try:
        yield
    finally:
        supervisor.ROOT = ROOT


def last_without_formats(into: Path) -> Path:
    """The code before checkpoints had formats; skipped where the history does not reach back so far."""

    def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, timeout=20, check=False
        )

    added = git("log", "--diff-filter=A", "--format=%H", "--", "ledger/checkpoints.py")
    since = added.stdout.decode().split()
    archive = git("archive", f"{since[-1]}~1" if since else "HEAD")
    if archive.returncode:
        pytest.skip("there is no commit from before checkpoints had formats in this clone")
    into.mkdir()
    subprocess.run(["tar", "-x", "-C", into], input=archive.stdout, timeout=20, check=True)
    assert not (into / "ledger" / "checkpoints.py").exists()
    return into


@pytest.fixture(params=["its own code", "an older setting"])
def builds(request: pytest.FixtureRequest, live: Live, tmp_path: Path) -> Iterator[Builds]:
    """While the previous build reads format 1 only, this one must write that: the expand phase of a new format."""
    conftest.empty()
    number = int(re.findall(r"\d+$", live.broker_url)[0])
    for name in programs.START_ORDER:  # whatever another test of this module left running
        live.end(name)
    live.start(programs.SANDBOX)
    workdir = tmp_path / "previous"
    workdir.mkdir()
    with Live(workdir, number) as previous:
        previous.sandbox.base_url = live.sandbox.base_url
        own_code = request.param == "its own code"
        made = Builds(
            live,
            previous,
            tree=last_without_formats(tmp_path / "tree") if own_code else ROOT,
            older={} if own_code else {"CHECKPOINT_FORMAT": "1"},
            ours={"CHECKPOINT_FORMAT": "1" if own_code else "2"},
            reads=[1] if own_code else list(checkpoints.READABLE),
            jobs=168 if own_code else 30,  # in each part
        )
        yield made
        for name in (*DRIVERS, *AROUND, programs.SANDBOX):
            live.end(name)


def book(builds: Builds) -> list[UUID]:
    """One part of the work: some are refused their ticket and go back."""
    live = builds.this
    live.control("latency", mean_seconds=0.05, jitter=0.5)
    times = round(builds.jobs * REFUSED)
    live.rule("refuse", match="ticket", times=times, status=422, code="none_left")
    return live.agent(capacity=builds.jobs).book_many(builds.jobs)


def some_ended(bookings: list[UUID], share: float) -> Callable[[], bool]:
    jobs = [job_of(booking) for booking in bookings]
    rows = models.Job.objects.filter(id__in=jobs, finished_at__isnull=False)
    return lambda: rows.count() >= share * len(jobs)


def ask_for_the_way_back(builds: Builds, tmp_path: Path) -> None:
    """As an operator would, with the previous build's manifest; CommandError where the answer is no."""
    stated = json.loads(_printed("manifest", "--json"))
    stated["build"], stated["checkpoints"]["reads"] = "previous", builds.reads
    against = tmp_path / "previous.json"
    against.write_text(json.dumps(stated))
    with override_settings(CHECKPOINT_FORMAT=int(builds.ours["CHECKPOINT_FORMAT"])):
        told = json.loads(_printed("preflight", "--against", str(against), "--json"))
    assert sum(kind["jobs"] for kind in told["in_flight"]) > 0


def formats(job: UUID) -> set[int]:
    return set(models.Checkpoint.objects.filter(job_id=job).values_list("format", flat=True))


def _printed(*command: str) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


@pytest.fixture
def as_low_as(builds: Builds) -> Iterator[None]:
    """Row-level security is as it was for the older code, off: that names no tenant, and would see nothing (decision 21)."""
    rows = [] if builds.older else sql.fetch(WALLED)
    for (table,) in rows:
        sql.fetch(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    yield
    for (table,) in rows:
        sql.fetch(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")


@pytest.mark.usefixtures("as_low_as")
def test_side_by_side_and_back_again(builds: Builds, tmp_path: Path) -> None:
    builds.start("this", *AROUND)
    first = book(builds)
    builds.drive(forward="this", backward="previous")
    until(some_ended(first, 0.3), SECONDS)

    builds.end(*DRIVERS)
    second = book(builds)
    builds.drive(forward="previous", backward="this")
    until(some_ended(first + second, 0.6), SECONDS)

    builds.end(*DRIVERS)
    third = book(builds)
    ask_for_the_way_back(builds, tmp_path)
    builds.end(*AROUND)
    builds.drive(forward="previous", backward="previous")
    builds.start("previous", *AROUND)
    every = first + second + third + builds.previous.agent().book_many(10)
    until(some_ended(every, 1.0), SECONDS)

    jobs = [job_of(booking) for booking in every]
    states = models.Job.objects.filter(id__in=jobs).values_list("state", flat=True)
    assert sorted(set(states)) == ["compensated", "confirmed"]
    assert list(states).count("compensated") == PARTS * round(builds.jobs * REFUSED)
    builds.this.assert_books_agree(every)
    assert [f for f in check.run() if not f.is_ok()] == []
    both = [job for job in jobs if builds.touched(job) == {"this", "previous"}]
    print(f"{len(both)} of {len(jobs)} jobs had both builds")  # noqa: T201  a measured figure
    assert len(both) * 100 >= BOTH_PERCENT * len(jobs)
    if builds.older:  # who wrote what stands in the checkpoints too
        assert sum(len(formats(job)) == 2 for job in jobs) * 100 >= BOTH_PERCENT * len(jobs)


NEWER: tuple[
    tuple[str, tuple[Any, ...], dict[str, Any]], ...
] = (  # what a newer web process might publish: a renamed task, one more argument, another payload
    ("ledger.drive_fairly", ("forward",), {}),
    (tickets.TASK, ("forward", 7), {}),
    (tickets.TASK, ("forward",), {"tenant": "one"}),
    (tickets.TASK, ({"lane": "forward"},), {}),
)


def test_messages_of_a_newer_build_are_dropped_and_the_ring_sweep_makes_up_for_them(
    live: Live,
) -> None:
    for name in programs.START_ORDER:
        live.end(name)
    conftest.empty()
    live.start(programs.SANDBOX)
    live.start(programs.API)
    booking = live.agent().book()
    until(lambda: live.broker.llen("forward"), SECONDS)
    live.broker.flushdb()  # its own ticket is lost
    with kombu.Connection(live.broker_url) as broker:
        for name, arguments, named in NEWER:
            config.celery.app.send_task(name, arguments, named, queue="forward", connection=broker)
    live.start(programs.WORKER)
    worker = live.started(programs.WORKER)
    until(live.is_silent, SECONDS)
    assert live.job(booking).state == "waiting"
    assert live.requests(booking) == []
    assert live.started(programs.WORKER) == worker, "nobody died of them"

    live.start(programs.SWEEPS, programs.BEAT)
    live.ended([booking], "confirmed", SECONDS)
    live.assert_books_agree([booking])

"""A real Celery worker that is armed to die: one of its children by its own SIGKILL, or all of it by ours.

It runs beside the healthy stack, one job at a time, so that the nth reach of a point is a certain step; the point fires once
in all of its processes. `DOOMS_AT_ONCE` start together, because starting is what takes the time.
"""

import dataclasses
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, override

from config import programs, supervisor
from config.management.commands.crash import RESULTS_VARIABLE
from ledger import crashpoints
from recovery.matrix.report import Row
from tests.acceptance import deaths
from tests.acceptance import live as acceptance
from tests.acceptance.live import Live

DOOMS_AT_ONCE = 6
START_SECONDS = 60.0
ALL_OFTEN = {
    "SWEEP_SECONDS_RARE": str(acceptance.SWEEP_SECONDS)
}  # so that a test meets the rare sweeps too
Who = Literal["child", "worker"]


@dataclass(frozen=True)
class Doom:
    """`where` is the step and direction that the nth reach belongs to."""

    point: str
    nth: int
    where: str
    who: Who = "child"

    @property
    def armed(self) -> str:
        kind = "kill" if self.who == "child" else "pause"
        return f"{self.point}={kind}@{self.nth}"

    @override
    def __str__(self) -> str:
        return f"{self.point}@{self.nth}-{self.who}"


class Doomed:
    """One armed worker."""

    def __init__(self, live: Live, doom: Doom, name: str, place: Path) -> None:
        self.doom, self.log, self._fired = doom, place / "log", place / "fired"
        stack: Any = live.stack
        env = programs.environment(name, stack._place, stack._env)
        env |= {crashpoints.ARM_VARIABLE: doom.armed, crashpoints.ONCE_VARIABLE: str(self._fired)}
        command = programs.command(name, stack._place)
        command[command.index("-n") + 1] = f"{place.name}@%h"
        command[command.index("-c") + 1] = "1"
        with self.log.open("wb") as output:
            self._process: subprocess.Popen[bytes] = stack._guardian.start(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=supervisor.ROOT,
                env={**env, **ALL_OFTEN, "SLOTS": "1"},
            )
        self._forget = stack._guardian.forget

    def is_ready(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()[-2_000:]
        return programs.WORKER_READY.search(self.log.read_text()) is not None

    def has_fired(self) -> bool:
        return self._fired.exists()

    def kill(self) -> None:
        """All of it, its watcher too, as the loss of a machine would."""
        pids = supervisor.children_of(self._process.pid)
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        deaths.signal_all(pids, signal.SIGKILL)
        self._process.wait(10)
        self._forget(self._process.pid)


@contextmanager
def started(live: Live, dooms: Sequence[Doom], name: str, place: Path) -> Iterator[list[Doomed]]:
    """These workers, ready; gone at the end."""
    workers: list[Doomed] = []
    try:
        for number, doom in enumerate(dooms):
            own = place / f"doomed-{number}"
            own.mkdir()
            workers.append(Doomed(live, doom, name, own))
        acceptance.until(lambda: all(w.is_ready() for w in workers), START_SECONDS)
        yield workers
    finally:
        for worker in workers:
            worker.kill()


def batches(dooms: Sequence[Doom]) -> list[list[Doom]]:
    return [list(dooms[i : i + DOOMS_AT_ONCE]) for i in range(0, len(dooms), DOOMS_AT_ONCE)]


def record(doom: Doom, ended: str, why: str = "", who: str = "") -> None:
    """A line for the run file, where one is being written."""
    if path := os.environ.get(RESULTS_VARIABLE):
        verdict = "failed" if why else "undisturbed"
        row = Row(
            who or doom.who, "bookings.trip", doom.point, "kill", doom.where, ended, verdict, why
        )
        with Path(path).open("a") as results:
            results.write(json.dumps(dataclasses.asdict(row)) + "\n")


@contextmanager
def recorded(dooms: Sequence[Doom], ended: str, who: str = "") -> Iterator[None]:
    """Each case of a batch is recorded as what the test found."""
    try:
        yield
    except BaseException as error:
        for doom in dooms:
            record(doom, "", f"{type(error).__name__}: {str(error)[:200]}", who)
        raise
    for doom in dooms:
        record(doom, ended, who=who)

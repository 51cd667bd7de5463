"""Starts, watches and stops the processes of the whole stack on one machine: for `up`, `demo` and
the system tests.

One log file and one session per process. The API listens on a socket that is bound here and handed
down, so that its port is known before it starts and stays its own over a restart.

Kept here: only what this stack started is ever signalled, every wait has a limit, and nothing
outlives the owner: an orderly end stops everything, and a guardian does when the owner is killed.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from config import guardian, processes, programs

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 60.0
COMMAND_SECONDS = 300.0
GRACE_SECONDS = 15.0


class StackError(Exception):
    """A process of the stack failed or was not ready in time; the message ends with the end of its log."""

    def __init__(self, name: str, what: str, log: Path) -> None:
        self.name, self.log = name, log
        super().__init__(f"{name} {what}; the end of its log:\n{processes.tail(log)}")


@dataclass(frozen=True, slots=True)
class Running:
    """One process of the stack. `log_start` is where the log of this start begins: a restart appends."""

    process: subprocess.Popen[bytes]
    log: Path
    log_start: int

    def output(self) -> str:
        return self.log.read_bytes()[self.log_start :].decode(errors="replace")


class Stack:
    """The processes by name. Start them all with `start`, or one by one; leave by `stop_all`, or as a context."""

    def __init__(
        self,
        env: Mapping[str, str],
        workdir: Path | None = None,
        *,
        concurrency: int = 2,
        port: int = 0,
        ending: processes.Ending | None = None,
    ) -> None:
        self._env = dict(env)
        self._ending = ending or processes.Ending()
        self._running: dict[str, Running] = {}
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self._guardian = guardian.Guardian()
        self._own_workdir = workdir is None
        self.workdir = (
            workdir or Path(tempfile.gettempdir()) / f"amends-stack-{secrets.token_hex(4)}"
        )
        if self._own_workdir:
            self._guardian.remove(self.workdir)
            self.workdir.mkdir(mode=0o700)
        api_port = int(self._listener.getsockname()[1])
        self._place = programs.Place(self.workdir, self._listener.fileno(), api_port, concurrency)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop_all()

    @property
    def api_url(self) -> str:
        return self._place.api_url

    @property
    def sandbox_url(self) -> str:
        return self._place.sandbox_url

    def log(self, name: str) -> Path:
        return self.workdir / f"{name}.log"

    def pid(self, name: str) -> int:
        return self._running[name].process.pid

    def children(self, name: str) -> list[int]:
        """The pids of a process's own children (a worker's pool), lowest first; its watcher is not one of them."""
        return [pid for pid in children_of(self.pid(name)) if not _is_watcher(pid)]

    def names(self) -> list[str]:
        """The processes that were started and not stopped."""
        return list(self._running)

    def is_ready(self, name: str) -> bool:
        one = self._running[name]
        return programs.readiness(name, self._place, one.output)()

    def ended(self) -> dict[str, int]:
        """The processes that ended though nobody stopped them, with their exit status."""
        statuses = {name: one.process.poll() for name, one in self._running.items()}
        return {name: status for name, status in statuses.items() if status is not None}

    def start(self) -> None:
        """Migrate, start everything, wait until it is ready; if any of it fails, stop it all again."""
        try:
            self.manage("migrate", "--verbosity", "0")
            self.start_one(programs.SANDBOX)
            self.wait_ready(programs.SANDBOX)  # the others are told its port
            for name in programs.START_ORDER[1:]:
                self.start_one(name)
            for name in programs.START_ORDER[1:]:
                self.wait_ready(name)
        except BaseException:
            self.stop_all()
            raise

    def start_one(
        self, name: str, *, env: Mapping[str, str] | None = None, children: int = 0
    ) -> None:
        """Start a process by its name, `worker.2` for another worker; `env` and `children` are this one's only."""
        if name in self._running and self._running[name].process.poll() is None:
            raise StackError(name, "runs already", self.log(name))
        self.stop(name)
        self._running[name] = self._spawn(
            name, programs.command(name, self._place, children), env=env
        )

    def wait_ready(self, name: str, seconds: float = START_SECONDS) -> None:
        one = self._running[name]
        is_ready = programs.readiness(name, self._place, one.output)
        self._ending.wait_until(lambda: one.process.poll() is not None or is_ready(), seconds)
        if one.process.poll() is not None:
            raise StackError(name, f"ended with status {one.process.returncode}", one.log)
        if not is_ready():
            raise StackError(name, f"was not ready after {seconds:g} s", one.log)

    def restart(self, name: str) -> None:
        """Start again a process that was killed, or stop it first, and wait until it is ready."""
        self.stop(name)
        self.start_one(name)
        self.wait_ready(name)

    def manage(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> str:
        """Run a `manage.py` command to its end as the owner role; return its standard output."""
        name = f"manage-{arguments[0]}"
        output = self.workdir / f"{name}.out"
        with output.open("wb") as stdout:
            command = [sys.executable, str(ROOT / "manage.py"), *arguments]
            one = self._spawn(name, command, stdout.fileno())
        try:
            is_done = self._ending.wait_until(lambda: one.process.poll() is not None, seconds)
        finally:
            self._end(one, GRACE_SECONDS)
            printed = output.read_text()
            output.unlink()  # it may be a key, which is shown once and kept nowhere
        if not is_done:
            raise StackError(name, f"was not done after {seconds:g} s", one.log)
        if one.process.returncode:
            raise StackError(name, f"ended with status {one.process.returncode}", one.log)
        return printed

    def kill(
        self, name: str, number: signal.Signals = signal.SIGKILL, *, group: bool = False
    ) -> None:
        """Signal a process, or with `group` its children too, and leave it at that."""
        process = self._running[name].process
        if process.poll() is None:
            deliver = os.killpg if group else os.kill
            deliver(process.pid, number)

    def wait_ended(self, name: str, seconds: float = GRACE_SECONDS) -> int:
        """Wait for a process that was told to end; return its exit status."""
        try:
            return self._running[name].process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise StackError(name, f"did not end in {seconds:g} s", self.log(name)) from None

    def stop(self, name: str, grace: float = GRACE_SECONDS) -> None:
        """TERM, wait, end by force; a process that is not there is fine."""
        one = self._running.pop(name, None)
        if one is not None:
            self._end(one, grace)

    def stop_all(self, grace: float = GRACE_SECONDS) -> None:
        """Stop everything, the sandbox last because calls under way need it. Safe to call twice."""
        with processes.undisturbed():
            rank = {kind: number for number, kind in enumerate(programs.STOP_ORDER)}
            names = sorted(self._running, key=lambda name: rank[programs.kind_of(name)])
            told = [name for name in names if programs.kind_of(name) != programs.SANDBOX]
            for name in told:
                self.kill(name, signal.SIGTERM)
            until = time.monotonic() + grace  # one grace for all: they end side by side
            for name in told:
                self._await_end(name, max(0.0, until - time.monotonic()))
            for name in names:
                self.stop(name, grace)
            self._listener.close()
            if self._own_workdir:
                shutil.rmtree(self.workdir, ignore_errors=True)
            self._guardian.dismiss()

    def _await_end(self, name: str, grace: float) -> None:
        """Wait for the first TERM to work: a second would turn Celery's warm shutdown into a cold one."""
        try:
            self._running[name].process.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill(name, signal.SIGKILL)

    def _end(self, one: Running, grace: float) -> None:
        processes.end(one.process, signal.SIGTERM, grace)
        self._guardian.forget(one.process.pid)

    def _spawn(
        self,
        name: str,
        command: Sequence[str],
        stdout: int | None = None,
        *,
        env: Mapping[str, str] | None = None,
    ) -> Running:
        self._ending.check()
        log = self.log(name)
        with log.open("ab") as output:
            log_start = output.tell()
            process = self._guardian.start(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output if stdout is None else stdout,
                stderr=output,
                cwd=ROOT,
                env={**programs.environment(name, self._place, self._env), **(env or {})},
                pass_fds=[self._place.listener] if programs.kind_of(name) == programs.API else [],
            )
        return Running(process, log, log_start)


def _is_watcher(pid: int) -> bool:
    try:
        return b"config.watcher" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def parent_of(pid: int) -> int:
    """0 for a process that is gone, or where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[1])


def children_of(parent: int) -> list[int]:
    """Read from /proc; empty where there is none."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it ended while we looked
        if int(fields[1]) == parent and fields[0] not in "ZX":
            found.append(int(entry.parent.name))
    return sorted(found)

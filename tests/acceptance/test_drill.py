"""A drill through its command: what it prints, how it exits, and that it leaves no process behind.

It brings servers of its own: the addresses of the test's are taken out of its environment.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from config import programs
from tests.acceptance import live as acceptance

pytestmark = pytest.mark.timeout(150)
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120
TOKEN = "AMENDS_TEST_TOKEN"  # noqa: S105  a mark, not a secret


def environment(place: Path) -> dict[str, str]:
    """What a shell would have: no address, and no role that this process took on."""
    ours = (*programs.ADDRESSES, "AMENDS_ROLE")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "TMPDIR": str(place), TOKEN: str(place)}


def left(place: Path) -> list[str]:
    """Processes that carry the mark, or were started in this place."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            texts = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(place).encode() in texts:
            found.append(entry.name)
    return found


def start(place: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "manage.py", "drill", *arguments],
        cwd=ROOT,
        env=environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where nobody else puts anything: the names of embedded servers' directories begin with it."""
    found = tmp_path / "temp"
    found.mkdir()
    return found


def test_a_small_drill_passes_and_leaves_nothing(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    drill = start(place, "lost-reply", "--jobs", "12", "--seed", "7", "--json", "--out", str(out))
    printed, said = drill.communicate(timeout=SECONDS)
    assert drill.returncode == 0, said
    assert said.startswith("seed 7")
    found = json.loads(printed)
    assert found["passed"] is True
    (one,) = found["drills"]
    assert (one["name"], one["jobs"], one["violations"]) == ("lost-reply", 12, 0)
    assert one["observed"]["unknown"] > 0
    assert one["recovery_s"]["p50"] <= one["recovery_s"]["p99"] <= one["recovery_s"]["max"]
    assert json.loads((out / "drills.json").read_text()) == found
    assert "## lost-reply: passed" in (out / "drills.md").read_text()
    assert (out / "drills.svg").read_text().startswith("<svg")
    assert left(place) == []


def test_a_drill_that_is_told_to_stop_leaves_nothing(place: Path) -> None:
    drill = start(place, "two-beats", "--jobs", "20")
    assert drill.stderr is not None
    for line in drill.stderr:  # until the stack is up and the drill has begun
        if line.startswith("two-beats"):
            break
    assert left(place)
    drill.send_signal(signal.SIGTERM)
    drill.communicate(timeout=SECONDS)
    assert drill.returncode == 128 + signal.SIGTERM
    acceptance.until(lambda: not left(place), 5, lambda: f"left behind: {left(place)}")


def test_nonsense_is_refused_before_anything_is_started(place: Path) -> None:
    for arguments in (["no-such-drill"], ["zombie", "--jobs", "0"]):
        drill = start(place, *arguments)
        printed, said = drill.communicate(timeout=SECONDS)
        assert drill.returncode != 0
        assert printed == ""
        assert "no-such-drill" in said or "--jobs" in said
    assert left(place) == []

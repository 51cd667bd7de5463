"""Crash points are declared, reached by production code, and a no-op unless somebody arms one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ledger import crashpoints

ROOT = Path(__file__).parents[2]
APPS = ("ledger", "bookings", "recovery", "config")
POINT = "settle.before"


@pytest.fixture(autouse=True)
def disarmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crashpoints, "_armed", {})


def test_a_point_that_nobody_armed_does_nothing() -> None:
    crashpoints.reach(POINT)


def test_an_unknown_name_is_a_programmers_error() -> None:
    with pytest.raises(AssertionError, match=r"settle\.never is not a declared crash point"):
        crashpoints.reach("settle.never")
    with pytest.raises(AssertionError), crashpoints.armed("settle.never", print):
        pass


def test_an_armed_point_runs_within_its_block_only() -> None:
    reached: list[str] = []
    with crashpoints.armed(POINT, reached.append):
        crashpoints.reach(POINT)
        crashpoints.reach("settle.after")
    crashpoints.reach(POINT)
    assert reached == [POINT]


def test_the_block_disarms_when_it_fails() -> None:
    with pytest.raises(ZeroDivisionError), crashpoints.armed(POINT, lambda _p: 1 / 0):  # type: ignore[arg-type]
        crashpoints.reach(POINT)
    crashpoints.reach(POINT)


def test_the_environment_arms_the_nth_time() -> None:
    crashpoints.arm_from_environment({"AMENDS_CRASH": f"{POINT}=error@3;claim.after=error"})
    crashpoints.reach(POINT)
    crashpoints.reach(POINT)
    with pytest.raises(crashpoints.CrashPointError, match=r"crash point settle\.before"):
        crashpoints.reach(POINT)
    crashpoints.reach(POINT)
    with pytest.raises(crashpoints.CrashPointError):
        crashpoints.reach("claim.after")


@pytest.mark.parametrize(
    "entry", ["settle.never=kill", f"{POINT}=explode", POINT, f"{POINT}=", "=kill"]
)
def test_the_environment_must_name_a_known_point_and_kind(entry: str) -> None:
    with pytest.raises(ValueError, match="names no known point and kind"):
        crashpoints.arm_from_environment({"AMENDS_CRASH": entry})


def test_an_environment_without_the_variable_arms_nothing() -> None:
    crashpoints.arm_from_environment({"PATH": ""})
    assert crashpoints._armed == {}


def test_only_one_of_many_processes_takes_a_crash_that_is_for_once(tmp_path: Path) -> None:
    environment = {"AMENDS_CRASH": f"{POINT}=error", "AMENDS_CRASH_ONCE": str(tmp_path / "taken")}
    crashpoints.arm_from_environment(environment)
    with pytest.raises(crashpoints.CrashPointError):
        crashpoints.reach(POINT)
    crashpoints.arm_from_environment(environment)  # as another process would
    crashpoints.reach(POINT)


def test_kill_ends_the_process_on_the_spot() -> None:
    code = f"from ledger import crashpoints as c; c.arm_from_environment(); c.reach('{POINT}'); print('alive')"
    environment = {"AMENDS_CRASH": f"{POINT}=kill", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, timeout=20, check=False
    )
    assert (ended.returncode, ended.stdout) == (-9, b"")


def test_every_declared_point_is_reached_by_production_code_and_says_what_is_true_there() -> None:
    sources = [p for app in APPS for p in (ROOT / app).rglob("*.py") if p.name != "crashpoints.py"]
    calls = "\n".join(
        re.findall(r"crashpoints\.reach\(.*\)", "\n".join(p.read_text("utf-8") for p in sources))
    )
    named = set(re.findall(r'"([a-z_]+\.[a-z_]+)"', calls))
    assert named == set(crashpoints.POINTS)
    assert all(crashpoints.POINTS.values())

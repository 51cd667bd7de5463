"""The evaluation gate fails when it should: on a planted bug, a part that raises or prints nothing, a figure too high."""

import json
import sys
import tomllib
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from config import processes
from config.gate import parts
from config.management.commands import gate
from recovery.simulation import planted

pytestmark = pytest.mark.timeout(120)
LIMITS = tomllib.loads(gate.THRESHOLDS.read_text(encoding="utf-8"))
FEW = {**LIMITS["histories"], "count": 6}


@pytest.fixture
def measured(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield


def lines(name: str, limits: dict[str, Any]) -> list[parts.Line]:
    with processes.Ending() as ending:
        return list(parts.PARTS[name](limits, ending))


def test_sound_histories_pass(measured: None) -> None:
    assert gate.missed(lines("histories", FEW)) == []


@pytest.mark.parametrize("bug", ["timeout_is_failure", "new_id_on_retry", "lease_by_worker_clock"])
def test_a_planted_bug_fails_it(measured: None, bug: str) -> None:
    with planted.bug(bug):
        found = gate.missed(lines("histories", FEW))
    assert found
    assert planted.PLANTED[bug].invariant in found[0].what


def test_a_threshold_that_is_too_tight_fails_it(measured: None) -> None:
    (found,) = gate.missed(lines("histories", {**FEW, "calls_per_job_max": 0.5}))
    assert found.what == "calls for each job"


def test_an_oracle_that_is_blind_fails_it(measured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One planted bug that changes nothing is one that nobody catches."""
    harmless = planted.Planted("R11", "nothing at all", lambda _undo: None)
    monkeypatch.setitem(planted.MORE, "harmless", harmless)
    monkeypatch.setattr(parts, "ALL_PLANTED", {"harmless": harmless})
    found = gate.missed(lines("planted", {"caught_min": 1, "search": 3, "seeds": {}}))
    assert [line.what for line in found] == ["bugs caught ['harmless']"]


@pytest.mark.parametrize("name", ["crash", "drills", "throughput"])
def test_a_command_that_prints_nothing_fails_its_part(
    measured: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    found = lines(name, LIMITS[name])
    assert gate.missed(found)
    assert [line.what for line in found if line.is_ok and line.allowed.startswith(">=")] == []


def test_a_part_that_raises_is_a_miss_and_the_others_are_run(
    measured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(limits: parts.Limits, _ending: processes.Ending) -> Iterator[parts.Line]:
        if limits:
            raise OSError("no disk")
        yield parts.at_most("histories", "anything", 0, 0)

    def sound(_limits: parts.Limits, _ending: processes.Ending) -> Iterator[parts.Line]:
        yield parts.at_most("crash", "anything", 0, 0)

    monkeypatch.setitem(parts.PARTS, "histories", broken)
    monkeypatch.setitem(parts.PARTS, "crash", sound)
    out = StringIO()
    with pytest.raises(SystemExit, match="1"):
        call_command("gate", "histories", "crash", as_json=True, stdout=out, stderr=StringIO())
    found = json.loads(out.getvalue())
    assert found["passed"] is False
    assert [line["is_ok"] for line in found["lines"]] == [False, True]
    assert "OSError: no disk" in found["lines"][0]["what"]


def test_an_unknown_part_is_named() -> None:
    told = StringIO()
    with pytest.raises(SystemExit, match="2"):
        call_command("gate", "speed", stderr=told)
    assert "there is no part speed, only histories, planted" in told.getvalue()


@pytest.mark.parametrize(
    ("line", "is_ok"),
    [
        (parts.at_most("p", "w", 1.0, 1), True),
        (parts.at_most("p", "w", 1.1, 1), False),
        (parts.at_most("p", "w", None, 1), False),
        (parts.at_most("p", "w", -1, 1), False),
        (parts.at_least("p", "w", 1, 1), True),
        (parts.at_least("p", "w", 0.9, 1), False),
    ],
)
def test_what_is_within_a_limit(line: parts.Line, is_ok: bool) -> None:
    assert line.is_ok is is_ok


def test_every_part_has_thresholds_and_every_threshold_a_part() -> None:
    assert set(LIMITS) == set(parts.PARTS)

"""The simulation: the same seed is the same history, runs resume and merge, and a class without a case fails a run."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from ledger import crashpoints
from recovery.simulation import faults, runfile, runs

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(1, 13)


def test_the_same_seed_is_the_same_history_to_the_bit(simulated: None) -> None:
    first = {seed: runs.run(seed) for seed in SEEDS}
    for seed in reversed(SEEDS):  # in another order: nothing is left over from the history before
        again = runs.run(seed)
        assert again.lines == first[seed].lines
        assert again.digest == first[seed].digest
    assert len({told.digest for told in first.values()}) == len(SEEDS)


def test_two_processes_agree_whatever_order_their_sets_have(simulated: None) -> None:
    def told(hash_seed: str) -> tuple[list[str], dict[str, Any]]:
        command = [sys.executable, "manage.py", "simulate", "--histories", "3", "--seed", "40"]
        done = subprocess.run(
            [*command, "--json", "--trace"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        digests = [line for line in done.stderr.splitlines() if line.startswith("digest ")]
        return digests, json.loads(done.stdout)

    (one, result), (other, _) = told("1"), told("2")
    assert len(one) == 3
    assert one == other
    assert {"histories", "violations", "counters", "seconds"} <= set(result)
    assert (result["histories"], result["violations"]) == (3, 0)


def test_no_invariant_is_violated(simulated: None) -> None:
    total = runs.Total()
    runs.play(iter(SEEDS), total, lambda _told: None)
    assert total.violations == []
    assert total.histories == len(SEEDS)


def test_a_run_goes_on_where_it_stopped(simulated: None, tmp_path: Path) -> None:
    played: list[int] = []
    halves, path = runfile.fresh(), tmp_path / "run.json"
    runs.play(iter(range(1, 4)), halves, lambda told: played.append(told.seed))
    runfile.write(path, halves)
    resumed = runfile.resumed(path)
    runs.play(iter(range(1, 7)), resumed, lambda told: played.append(told.seed))
    assert played == [1, 2, 3, 4, 5, 6]
    whole = runs.Total()
    runs.play(iter(range(1, 7)), whole, lambda _told: None)
    assert (resumed.ranges, resumed.counters) == (whole.ranges, whole.counters)


def test_runs_of_other_seeds_merge_and_overlapping_ones_do_not() -> None:
    one = runs.Total([[1, 10]], Counter(killed=2), [], 1.0)
    one.merge(runs.Total([[11, 20], [31, 40]], Counter(killed=3), [], 2.0))
    assert (one.ranges, one.histories, one.counters["killed"]) == ([[1, 20], [31, 40]], 30, 5)
    with pytest.raises(ValueError, match="share seeds"):
        one.merge(runs.Total([[15, 15]], Counter(killed=1), [], 0.1))
    assert (one.histories, one.counters["killed"]) == (30, 5)


def test_runs_of_two_commits_do_not_merge() -> None:
    one = runs.Total([[1, 10]], Counter(killed=2), commit="one")
    with pytest.raises(ValueError, match="two commits"):
        one.merge(runs.Total([[11, 20]], Counter(killed=3), commit="other"))
    assert (one.histories, one.counters["killed"]) == (10, 2)


def test_a_run_file_says_what_it_is_of_and_merges_with_its_like(tmp_path: Path) -> None:
    for name, first in (("a", 1), ("b", 11)):
        total = runfile.fresh()
        total.ranges = [[first, first + 9]]
        runfile.write(tmp_path / name, total)
    stored = json.loads((tmp_path / "a").read_text())
    assert stored["commit"]
    assert f"Python {sys.version_info.major}." in stored["machines"][0]
    both = runfile.read(tmp_path / "a")
    both.merge(runfile.read(tmp_path / "b"))
    assert (both.ranges, both.machines) == ([[1, 20]], stored["machines"])


@pytest.mark.parametrize(
    "options",
    [
        {"merge": ["missing.json"]},
        {"resume": "missing/run.json"},
        {"merge": ["other.json"]},
        {"resume": "other.json"},
        {"resume": "garbage.json"},
    ],
    ids=str,
)
def test_a_wrong_run_file_is_refused_before_anything_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    runfile.write(Path("other.json"), runs.Total([[1, 1]], commit="another", machines=["m"]))
    Path("garbage.json").write_text("{}")
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    with pytest.raises(CommandError):  # a test without the database: playing would be another error
        call_command("simulate", **_with_paths(options))
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


def _with_paths(options: dict[str, Any]) -> dict[str, Any]:
    return {k: Path(v) if isinstance(v, str) else [Path(p) for p in v] for k, v in options.items()}


@pytest.mark.parametrize(
    "lost", ["fault:pause", "point:settle.after", "shape:sim.tour.1", "drained"]
)
def test_a_declared_class_without_a_case_fails_a_long_run(lost: str) -> None:
    whole = runs.Total([[1, runs.COVERAGE_FROM]], Counter(runs.declared()))
    assert whole.missing() == []
    del whole.counters[lost]
    assert whole.missing() == [lost]


def test_a_short_run_need_not_meet_everything() -> None:
    assert runs.Total([[1, runs.COVERAGE_FROM - 1]]).missing() == []


def test_every_range_of_seeds_has_every_case() -> None:
    """The first fault goes round: as many seeds as there are cases meet them all."""
    every = faults.cases()
    assert len(every) == len(set(every))
    assert {point for point, _ in every} == set(faults.points())
    assert {kind for _, kind in every} == set(faults.KINDS)


def test_what_is_left_out_exists() -> None:
    for left_out in (*faults.ELSEWHERE, *faults.THREADED):
        assert any(point.startswith(left_out) for point in crashpoints.POINTS), left_out

"""The simulation: the same seed is the same history, runs resume and merge, and a class without a case fails a run."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recovery.simulation import faults, runs

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
    halves, path = runs.Total(), tmp_path / "run.json"
    runs.play(iter(range(1, 4)), halves, lambda told: played.append(told.seed))
    runs.write(path, halves)
    resumed = runs.read(path)
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

"""Planted bugs: each mutation of the system is caught, and by the invariant that is named for it."""

import json
from collections.abc import Sequence
from io import StringIO

import pytest
from django.core.management import call_command

from recovery.simulation import planted, planted_ways, runs

pytestmark = pytest.mark.timeout(120)
SEEDS = range(1, 81)
MORE_SEEDS = range(1, 161)  # doubt is rarer


def caught(invariant: str, seeds: Sequence[int] = SEEDS) -> int | None:
    """The first seed whose history violates it."""
    for seed in seeds:
        if any(v.invariant == invariant for v in runs.run(seed).violations):
            return seed
    return None


@pytest.mark.parametrize("name", planted.PLANTED)
def test_it_is_caught_by_its_invariant(simulated: None, name: str) -> None:
    with planted.bug(name):
        seed = caught(planted.PLANTED[name].invariant)
    assert seed is not None, f"{name} went unseen"
    for same in SEEDS[: SEEDS.index(seed) + 1]:
        assert runs.run(same).violations == [], "without the bug, the same histories are sound"


@pytest.mark.parametrize("name", planted.MORE)
def test_what_is_taken_for_proof_is_caught_too(simulated: None, name: str) -> None:
    with planted.bug(name):
        seed = caught(planted.MORE[name].invariant, MORE_SEEDS)
    assert seed is not None, f"{name} went unseen"
    assert runs.run(seed).violations == [], "without the bug, the same history is sound"


def test_the_command_names_the_invariant_and_how_to_replay_it(simulated: None) -> None:
    out, told = StringIO(), StringIO()
    with planted.bug("timeout_is_failure"), pytest.raises(SystemExit, match="1"):
        call_command("simulate", histories=12, seed=1, as_json=True, stdout=out, stderr=told)
    result = json.loads(out.getvalue())
    assert result["histories"] == 12
    assert result["violations"] >= 1
    seed, invariant, _what = result["violated"][0]
    assert invariant == "R11"
    assert f"simulate --histories 1 --seed {seed}" in told.getvalue()


def test_there_are_ten() -> None:
    assert len(planted.PLANTED) == 10


def test_there_are_more_than_thirty() -> None:
    assert planted_ways.__name__, "imported for what it plants"
    assert len(planted.PLANTED | planted.MORE) == 32

"""What the soak decides without a stack: what the seed deals, what honest staff may say, what is summed up and what fails.

The rest of it, real windows on real processes, is `make soak`.
"""

import threading
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django.fixtures import Settings

from config import soak_place
from ledger import checks
from recovery.drills import hasty, mixed, operators, partitions, skew, soak, totals
from recovery.drills import place as names
from recovery.drills.later import Later
from recovery.drills.report import Report, Result
from recovery.proxy import MODES

BOTH = frozenset({names.DATABASE, names.BROKER})
KINDS = soak.possible(BOTH, has_faketime=True)
OPERATION = "j:capture_payment:forward"
EFFECTS = [{"operation_id": OPERATION, "id": "ch_1", "amount_minor": 5, "currency": "EUR"}]
DONE = {
    "ref": "ch_1",
    "data": {"amount_minor": 5, "currency": "EUR"},
    "note": "it stands in the provider's books",
}


@given(st.integers(0, 10**9))
def test_the_seed_deals_every_fault_and_every_manner_within_a_few_windows(seed: int) -> None:
    dealt = soak.deal(seed, 5, KINDS)
    assert dealt == soak.deal(seed, 5, KINDS)
    for window in dealt:
        assert soak.FEWEST <= len(set(window.faults)) == len(window.faults) <= soak.MOST
        assert len({str(manner) for manner in window.manners}) == soak.MANNERS
    assert {name for window in dealt for name in window.faults} == set(KINDS)
    manners = {str(manner) for window in dealt for manner in window.manners}
    assert manners == {str(manner) for manner in (*mixed.MANNERS, *soak.MORE_MANNERS)}


def test_another_seed_deals_otherwise() -> None:
    assert soak.deal(1, 5, KINDS) != soak.deal(2, 5, KINDS)


def test_what_cannot_be_had_here_is_not_dealt() -> None:
    assert set(KINDS) - set(soak.possible(BOTH, has_faketime=False)) == {soak.SKEW}
    elsewhere = soak.possible(frozenset(), has_faketime=True)
    assert set(KINDS) - set(elsewhere) == {"broker killed", "database stopped"}


def test_every_kind_of_fault_has_its_own_name() -> None:
    assert len(KINDS) == len(set(KINDS)) == len(mixed.FAULTS) + len(soak.MORE_FAULTS) + 3
    assert set(partitions.MODES) <= set(MODES)


def test_what_is_left_for_later_is_done_when_it_has_finished() -> None:
    done: list[int] = []
    later = Later()
    for number in range(3):
        later.after(0.05 * number, partial(done.append, number))
    later.finish()
    assert sorted(done) == [0, 1, 2]
    assert not [one for one in threading.enumerate() if isinstance(one, threading.Timer)]


def test_what_goes_wrong_later_is_told() -> None:
    done: list[str] = []
    later = Later()
    later.after(0.0, partial(done.remove, "what is not there"))
    later.after(0.05, lambda: done.append("the other"))
    with pytest.raises(ExceptionGroup, match="left for later") as raised:
        later.finish()
    assert isinstance(raised.value.exceptions[0], ValueError)
    assert done == ["the other"]
    later.finish()  # told once


@pytest.mark.parametrize(
    ("act", "effects", "is_settled", "said"),
    [
        ("done", EFFECTS, False, DONE),
        ("done", [], True, None),
        ("done", [{"operation_id": "another", "id": "ch_2"}], True, None),
        ("not-done", [], True, {"note": "the provider's books do not have it"}),
        ("not-done", [], False, None),  # it may be on its way
        ("not-done", EFFECTS, True, None),
    ],
)
def test_staff_say_what_the_books_say(
    act: str, effects: list[dict[str, Any]], said: dict[str, Any] | None, *, is_settled: bool
) -> None:
    assert operators.ruling(OPERATION, act, effects, is_settled=is_settled) == said


def test_a_wrong_clock_leaves_the_monotonic_one_alone() -> None:
    for name in skew.SKEWS:
        found = skew.conditions("/lib/liar.so", name, Path("/tmp/x/clock"))  # noqa: S108  not opened
        assert found["LD_PRELOAD"] == "/lib/liar.so"
        assert found["FAKETIME_DONT_FAKE_MONOTONIC"] == "1"
        assert found["PYTHONPATH"] == "/tmp/x"  # noqa: S108
        assert ("FAKETIME" in found) is not ("FAKETIME_TIMESTAMP_FILE" in found)


def test_the_settings_of_the_soak_are_in_order(settings: Settings) -> None:
    conditions = {**soak_place.SoakPlace.env, **hasty.rates(0.5)}
    for name, value in conditions.items():
        if hasattr(settings, name):
            setattr(settings, name, type(getattr(settings, name))(float(value)))
    assert [problem.msg for problem in checks.periods()] == []
    assert settings.SWEEP_SECONDS * hasty.TIMES == 0.5
    assert settings.RETENTION_DAYS == hasty.TERM_DAYS


def window(**changes: object) -> Result:
    names = [name for of in totals.SOMETIMES.values() for name in of]
    seen = {name: 1 for name in names if not name.startswith(totals.OUTCOME)}
    seen |= {"skews": 1, "fault: partition": 2}
    one = Result("soak-1", "what is dealt.", 1_000, 60.0, "end", [0.5, 2.0], observed=seen)
    one.outcomes["compensated"] = 3
    return replace(one, **changes)  # type: ignore[arg-type]  # names of it


def conclude(*windows: Result, has_faketime: bool = True) -> Report:
    found = Report(list(windows))
    totals.conclude(found, has_faketime=has_faketime)
    return found


def test_counters_and_recovery_are_summed_over_the_windows() -> None:
    found = conclude(window(), window(recovery=[4.0]))
    assert found.has_passed
    assert found.sums["jobs"] == 2_000
    assert found.sums["faults"] == {"partition": 4}
    assert found.sums["sometimes"]["compensation after a part was done"] == 6
    assert found.sums["recovery_s"] == {"p50": 2.0, "p99": 4.0, "max": 4.0}
    assert found.as_json()["sometimes"] == found.sums["sometimes"]


@pytest.mark.parametrize("what", totals.SOMETIMES)
def test_a_counter_at_zero_fails_a_large_soak_and_no_small_one(what: str) -> None:
    blind = window()
    if what == "compensation after a part was done":
        blind.outcomes = {}
    blind.observed = {k: n for k, n in blind.observed.items() if k not in totals.SOMETIMES[what]}
    assert conclude(blind).has_passed
    large = conclude(blind, blind)
    assert large.failures == [f"never seen: {what}"]
    assert not large.has_passed
    assert conclude(blind, window(), window()).has_passed  # seen once is enough


def test_a_soak_without_wrong_clocks_need_not_have_seen_them() -> None:
    blind = window()
    del blind.observed["skews"]
    assert conclude(blind, blind, has_faketime=False).has_passed
    assert not conclude(blind, blind, has_faketime=True).has_passed


def test_the_run_file_tells_the_sums_and_each_window() -> None:
    found = conclude(window(), window(name="soak-2", failures=["b1: paid twice"]))
    text = totals.markdown(found, ["make soak"], "soak")
    for line in (
        "# Soak: one run",
        "2000 jobs, 1 violations.",
        "| partition | 4 |",
        "| 429 obeyed | 2 |",
        "- soak-1, 60 s: what is dealt.",
        "## soak-2: FAILED",
        "- b1: paid twice",
    ):
        assert line in text.splitlines()
    assert "## soak-1" not in text


def test_every_counter_is_one_that_somebody_counts() -> None:
    """A name that nothing writes would fail every soak; each is found in the sources as it is written there."""
    root = Path(soak.__file__).parents[2]
    text = "".join(
        p.read_text() for app in ("recovery", "ledger") for p in root.glob(f"{app}/**/*.py")
    )
    counted = Counter(name for of in totals.SOMETIMES.values() for name in of)
    for name in counted:
        parts = name.removeprefix(totals.OUTCOME).split(": ")[-1].split(" ")
        assert all(f'"{part}"' in text for part in parts), name

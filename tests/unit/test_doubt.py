"""The decision about an operation in doubt, over every combination of what can be known. Nothing is guessed in any."""

from collections import Counter
from datetime import timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import doubt
from ledger.doubt import Decision, Doubt, Verdict
from tests.histories import NOW

MINUTE = timedelta(minutes=1)
TIMES = (None, NOW - 3 * MINUTE, NOW - MINUTE, NOW, NOW + MINUTE)
FLAGS = (
    "is_wanted",
    "can_probe",
    "can_bury",
    "resend_to_learn",
    "late_probe_suffices",
    "senders_done",
    "asks_left",
    "burials_left",
    "sends_left",
)


def known(**given: object) -> Doubt:
    """Nothing is possible and nothing is known, but what is given."""
    nothing: dict[str, object] = {
        **dict.fromkeys(FLAGS, False),
        "now": NOW,
        **dict.fromkeys(("key_until", "clear_at", "negative_at")),
        **dict.fromkeys(("next_ask_at", "next_burial_at", "next_send_at"), NOW),
    }
    return Doubt(**{**nothing, **given})  # type: ignore[arg-type]


def everything() -> list[Doubt]:
    flags = product((False, True), repeat=len(FLAGS))
    times = [(k, c, n) for k in TIMES for c in TIMES for n in TIMES if n is None or n <= NOW]
    return [
        known(**dict(zip(FLAGS, f, strict=True)), key_until=k, clear_at=c, negative_at=n)
        for f in flags
        for k, c, n in times
    ]


def check(d: Doubt, decision: Decision) -> None:
    """What each verdict rests on, said once more and otherwise than the function says it."""
    key_lives = d.key_until is not None and d.key_until > NOW
    is_proved = (
        d.can_probe
        and d.negative_at is not None
        and d.clear_at is not None
        and d.negative_at > d.clear_at
        and (d.senders_done or d.late_probe_suffices)
    )
    match decision.verdict:
        case Verdict.ASK:
            assert d.can_probe
            assert d.asks_left
        case Verdict.BURY:
            assert d.can_bury
            assert d.burials_left
            assert not d.is_wanted
        case Verdict.RESEND:
            assert d.sends_left
            assert (key_lives or is_proved) if d.is_wanted else (d.resend_to_learn and key_lives)
            assert d.is_wanted or not d.can_probe
        case Verdict.WAIT:
            assert decision.at is not None
            assert decision.at >= NOW
            assert d.can_probe
            assert d.asks_left, "a wait for nothing"
        case Verdict.NOT_DONE:
            assert is_proved
            assert not d.is_wanted
        case Verdict.SPENT:
            assert is_proved
            assert d.is_wanted
            assert not d.sends_left
        case Verdict.BLOCKED:
            assert decision.why
            assert not (d.is_wanted and key_lives and d.sends_left), "blocked with a key in hand"
            assert not is_proved, "blocked with the proof in hand"


def test_every_combination_is_decided_and_each_verdict_rests_on_what_allows_it() -> None:
    counted: Counter[Verdict] = Counter()
    for d in everything():
        decision = doubt.decide(d)
        check(d, decision)
        counted[decision.verdict] += 1
        if d.can_probe and d.asks_left and d.negative_at is None:
            assert decision.verdict is Verdict.ASK, "where there is a probe it is asked first"
    assert set(counted) == set(Verdict)


@given(
    st.fixed_dictionaries(dict.fromkeys(FLAGS, st.booleans())),
    st.lists(st.none() | st.integers(-600, 600), min_size=3, max_size=3),
    st.lists(st.integers(-60, 60), min_size=3, max_size=3),
)
def test_at_any_times(flags: dict[str, bool], at: list[int | None], waits: list[int]) -> None:
    key, clear, negative = (NOW + timedelta(seconds=s) if s is not None else None for s in at)
    ask, burial, send = (NOW + timedelta(seconds=s) for s in waits)
    d = known(
        **flags,
        key_until=key,
        clear_at=clear,
        negative_at=negative,
        next_ask_at=ask,
        next_burial_at=burial,
        next_send_at=send,
    )
    decision = doubt.decide(d)
    check(d, decision)
    assert decision == doubt.decide(d)


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ({}, Verdict.BLOCKED),
        ({"is_wanted": True, "sends_left": True}, Verdict.BLOCKED),
        ({"is_wanted": True, "sends_left": True, "key_until": NOW + MINUTE}, Verdict.RESEND),
        ({"is_wanted": True, "sends_left": True, "key_until": NOW}, Verdict.BLOCKED),
        ({"sends_left": True, "key_until": NOW + MINUTE}, Verdict.BLOCKED),
        ({"can_bury": True, "burials_left": True}, Verdict.BURY),
        ({"can_bury": True, "burials_left": True, "is_wanted": True}, Verdict.BLOCKED),
    ],
)
def test_by_name(given: dict[str, object], verdict: Verdict) -> None:
    assert doubt.decide(known(**given)).verdict is verdict

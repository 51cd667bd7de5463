"""The judge of the drills is worth something: honest books pass, and each kind of wrong is found and named.

So is the report: its percentiles are values that were measured, and it passes nothing that did not pass.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery import books
from recovery.drills import catalogue, events, judge, report
from recovery.drills.judge import Job, Witnesses
from recovery.drills.load import Journal, Told
from recovery.drills.report import Report, Result

PAID, UNDONE = UUID(int=1), UUID(int=2)
CAPTURE, TICKET = f"{PAID}:capture_payment:forward", f"{PAID}:issue_ticket:forward"
TAKEN, REFUND = f"{UNDONE}:capture_payment:forward", f"{UNDONE}:capture_payment:backward"


def honest() -> Witnesses:
    """One booking confirmed, one compensated; all three witnesses agree."""
    told = {
        "k1": Told("k1", "", {}, "b1", 20_000),
        "k2": Told("k2", "", {}, "b2", 20_002),
    }
    jobs = [
        Job("k1", PAID, "confirmed", "b1", 20_000, "EUR"),
        Job("k2", UNDONE, "compensated", "b2", 20_002, "EUR"),
    ]
    effects = [
        books.Effect(CAPTURE, "capture", "b1", 20_000, "EUR"),
        books.Effect(TICKET, "ticket", "b1"),
        books.Effect(TAKEN, "capture", "b2", 20_002, "EUR"),
        books.Effect(REFUND, "refund", "b2", 20_002, "EUR"),
    ]
    receipts = [
        books.Receipt(e.operation_id, e.kind, "confirmed", e.amount_minor, e.currency)
        for e in effects
    ]
    return Witnesses(Journal(told=told), jobs, receipts, effects)


def without_job(found: Witnesses) -> Witnesses:
    return replace(
        found, jobs=found.jobs[:1], receipts=found.receipts[:2], effects=found.effects[:2]
    )


def with_job(found: Witnesses, **changes: object) -> Witnesses:
    return replace(found, jobs=[replace(found.jobs[0], **changes), *found.jobs[1:]])  # type: ignore[arg-type]  # names of it


def told_otherwise(found: Witnesses) -> Witnesses:
    found.journal.told["k1"].price_minor += 1
    return found


def never_answered(found: Witnesses) -> Witnesses:
    found.journal.told["k3"] = Told("k3", "", {})
    return found


def contradicted(found: Witnesses) -> Witnesses:
    found.journal.wrong.append("k1: b1 first, then b9")
    return found


PLANTED: dict[str, tuple[Callable[[Witnesses], Witnesses], str]] = {
    "an effect done twice": (
        lambda w: replace(w, effects=[*w.effects, w.effects[1]]), f"{TICKET}: done 2 times"),
    "a capture done twice": (
        lambda w: replace(w, effects=[w.effects[0], *w.effects]), "40000 taken after"),
    "an effect without a receipt": (
        lambda w: replace(w, receipts=w.receipts[1:]), f"{CAPTURE}: in the provider's books"),
    "a receipt without an effect": (
        lambda w: replace(w, effects=[*w.effects[:1], *w.effects[2:]]), f"{TICKET}: confirmed, yet not"),
    "a refund before its capture": (
        lambda w: replace(w, effects=[*w.effects[:2], w.effects[3], w.effects[2]]), "-20002 taken after"),
    "another amount": (
        lambda w: replace(w, effects=[replace(w.effects[0], amount_minor=1), *w.effects[1:]]), "capture of 1 EUR"),
    "compensated and not paid back": (
        lambda w: replace(w, effects=w.effects[:3], receipts=w.receipts[:3]), "booking b2: compensated, but paid"),
    "an accepted booking that is gone": (without_job, "k2: accepted, and has 0 jobs"),
    "a booking with two jobs": (
        lambda w: replace(w, jobs=[*w.jobs, replace(w.jobs[1], id=UUID(int=3))]), "k2: accepted, and has 2 jobs"),
    "another price than the client was told": (told_otherwise, "k1: told b1 for 20001"),
    "a key without an answer": (never_answered, "k3: never answered"),
    "two answers for one key": (contradicted, "k1: b1 first"),
    "a job that never came to rest": (lambda w: with_job(w, state="queued"), f"job {PAID}: is queued"),
    "a parked job": (
        lambda w: with_job(w, state="parked", reason="conflict"), f"job {PAID}: is parked conflict"),
    "a parked job without a reason": (lambda w: with_job(w, state="parked"), f"job {PAID}: parked without a reason"),
}  # fmt: skip


def test_honest_books_pass() -> None:
    assert judge.judge(honest()) == []


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_wrong_is_found_and_named(name: str) -> None:
    plant, text = PLANTED[name]
    found = judge.judge(plant(honest()))
    assert any(text in one for one in found), found


def test_a_wait_that_was_cut_short_is_found() -> None:
    def asked(at: float, status: int) -> dict[str, object]:
        return {"operation_id": "op", "received_at": at, "status": status}

    assert judge.obeyed_waits([asked(1.0, 429), asked(2.1, 200)], 1.0) == (1, [])
    obeyed, early = judge.obeyed_waits([asked(1.0, 429), asked(1.9, 429), asked(3.0, 200)], 1.0)
    assert obeyed == 2
    assert early == ["op: asked again 0.90 s after a 429 of 1 s"]
    assert judge.obeyed_waits([asked(1.0, 200), asked(1.1, 200)], 1.0) == (0, [])


def test_events_are_counted_by_what_they_say() -> None:
    lines = [
        '{"event": "jobs.reclaimed", "reason": "lease_expired", "count": 3}',
        '{"event": "write.refused", "write": "settle"}',
        '{"event": "Task ledger.drive[1] received"}',
        '{"event": "write.refused", "write": ',
        "no JSON at all",
    ]
    assert events.count(lines) == {
        "jobs.reclaimed": 3,
        "jobs.reclaimed lease_expired": 3,
        "write.refused": 1,
        "write.refused settle": 1,
    }


# --- The report ------------------------------------------------------------------------------------------------------


def test_percentiles_are_values_that_were_measured() -> None:
    hundred = [float(n) for n in range(1, 101)]
    assert report.percentiles(hundred) == {"p50": 50.0, "p99": 99.0, "max": 100.0}
    assert report.percentiles([0.25]) == {"p50": 0.25, "p99": 0.25, "max": 0.25}
    assert report.percentiles([]) == {"p50": None, "p99": None, "max": None}


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=300))
def test_percentiles_are_in_order_and_have_enough_below_them(thousandths: list[int]) -> None:
    seconds = [n / 1000 for n in thousandths]
    found = report.percentiles(seconds)
    assert found["p50"] is not None
    assert found["p99"] is not None
    assert found["p50"] <= found["p99"] <= max(seconds) == found["max"]
    for part, value in ((0.5, found["p50"]), (0.99, found["p99"])):
        assert value in seconds
        assert sum(one <= value for one in seconds) >= math.ceil(part * len(seconds))


def result(**changes: object) -> Result:
    good = Result("zombie", "what is done", 20, 7.5, "claim", [0.5, 3.2], observed={"zombies": 2})
    return replace(good, **changes)  # type: ignore[arg-type]  # names of it


@pytest.mark.parametrize(
    ("found", "has_passed"),
    [
        (Report([result()]), True),
        (Report([result(), result(failures=["booking b1: paid twice"])]), False),
        (Report([result(zero=["write.refused"])]), False),
        (Report([result()], failures=["process 7 is still there"]), False),
        (Report([]), False),
    ],
)
def test_only_what_passed_passes(found: Report, *, has_passed: bool) -> None:
    assert found.as_json()["passed"] is has_passed
    assert ("result: FAILED" in report.markdown(found, [])) is not has_passed
    assert (list(report.summary(found))[-1] == "FAILED") is not has_passed


def test_the_json_has_the_shape_that_is_promised() -> None:
    found = json.loads(json.dumps(Report([result(failures=["x"], zero=["y"])]).as_json()))
    drill = found["drills"][0]
    assert (drill["name"], drill["jobs"], drill["violations"]) == ("zombie", 20, 1)
    assert drill["recovery_s"] == {"p50": 0.5, "p99": 3.2, "max": 3.2}
    assert drill["observed"] == {"zombies": 2}
    assert (drill["failures"], drill["never_seen"]) == (["x"], ["y"])


def test_the_run_file_tells_failures_and_what_was_never_seen() -> None:
    found = report.markdown(
        Report([result(failures=["b1: paid twice"], zero=["refused"])]), ["cmd"]
    )
    assert "- b1: paid twice" in found
    assert "- never seen: refused" in found
    assert "    cmd" in found


def test_the_plot_has_a_dot_for_each_job_and_is_well_formed() -> None:
    drawn = ET.fromstring(report.svg([result(), result(recovery=[])]))  # noqa: S314  our own
    dots = [one for one in drawn.iter() if one.tag.endswith("circle")]
    assert len(dots) == 2
    across = [float(one.attrib["cx"]) for one in dots]
    assert report.LEFT <= across[0] < across[1] <= report.WIDTH


def test_every_drill_says_what_it_does_and_what_must_be_seen() -> None:
    assert len(catalogue.DRILLS) == 14
    for name, drill in catalogue.DRILLS.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
        assert drill.done.endswith(".")
        assert drill.must_see

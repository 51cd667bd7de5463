"""Where a job stands: one class each, judged by the journal. A state that the journal does not prove counts for nothing."""

from typing import Any

import pytest

from ledger import operations, standing
from ledger.operations import Entry, Receipt, Resolution
from ledger.outcomes import ReceiptOutcome
from ledger.saga import Direction
from ledger.standing import Amounts, Standing
from ledger.states import JobState
from tests import histories

STEPS = ("room", "payment", "ticket")
WHOLE = "room+ payment+ ticket+"
UNDONE = "room+ payment+ ticket- ~payment+ ~room+"


def job(state: str, direction: str = "forward", **more: Any) -> standing.Job:
    known: dict[str, Any] = {"steps": STEPS, **more}
    return standing.Job(state=JobState(state), direction=Direction(direction), **known)


def parked(reason: str, direction: str = "forward") -> standing.Job:
    return job("parked", direction, parked_reason=reason)


def act(name: str, by: str, step: str = "", direction: str = "forward") -> Resolution:
    return Resolution(step, Direction(direction), name, by, {"ref": "ref"}, histories.NOW)


BACK = ("compensated", "backward")
CASES: list[tuple[standing.Job, str, str]] = [
    (job("waiting"), "", "in_progress"),
    (job("queued"), "room+ payment.", "in_progress"),
    (job("running", is_leased=True), "room+ payment!", "in_progress"),
    (job("running"), "room+ payment!", "unknown_outcome"),
    (job("waiting"), "room+ payment?", "unknown_outcome"),
    (job("waiting", "backward"), "room+ payment?", "unknown_outcome"),
    (parked("unknown_outcome"), "room+ payment?", "unknown_outcome"),
    (parked("compensation_failed", "backward"), "room+ payment+ ticket- ~payment?", "unknown_outcome"),
    (parked("contradiction"), "room+ payment-", "unknown_outcome"),
    (parked("compensation_failed", "backward"), "room+ payment+ ticket- ~payment-", "compensation_pending"),
    (job("queued", "backward"), "room+ payment-", "compensation_pending"),
    (job("running", "backward", is_leased=True), "room+ payment?", "compensation_pending"),
    (parked("refused_after_pivot"), f"{WHOLE} mail-", "parked_forward"),
    (parked("worker_lost"), "room+", "parked_forward"),
    (job("confirmed"), WHOLE, "confirmed"),
    (job("confirmed", steps=None), WHOLE, "confirmed"),
    (job(*BACK), UNDONE, "completed_recovery"),
    (job(*BACK, steps=None), UNDONE, "completed_recovery"),
    (job("refused", "backward"), "room-", "confirmed_failure"),
    (job("refused", "backward"), "room. ", "confirmed_failure"),
    (job("refused", "backward"), "", "confirmed_failure"),
]  # fmt: skip
UNPROVEN: list[tuple[standing.Job, str]] = [
    (job("confirmed"), "room+ payment+"),
    (job("confirmed"), "room+ payment+ ticket-"),
    (job("confirmed", steps=None), ""),
    (job("confirmed"), f"{WHOLE} ~payment+"),
    (job(*BACK), "room+ payment+ ticket- ~room+"),
    (job(*BACK), "room+ payment+ ticket- ~payment- ~room+"),
    (job(*BACK, steps=None), "room+ payment+ ticket- ~payment. ~room+"),
    (job(*BACK), "room+ payment- ~payment+ ~room+"),
    (job("refused", "backward"), "room+"),
    (job("closed"), "room+ payment-"),
]


@pytest.mark.parametrize(("stands", "text", "wanted"), CASES)
def test_each_job_is_in_the_first_class_that_matches(
    stands: standing.Job, text: str, wanted: str
) -> None:
    assert standing.classify(stands, histories.history(text)) == wanted


@pytest.mark.parametrize(("stands", "text"), UNPROVEN)
def test_an_end_that_the_journal_does_not_prove_is_unknown(stands: standing.Job, text: str) -> None:
    assert standing.classify(stands, histories.history(text)) is Standing.UNKNOWN_OUTCOME


@pytest.mark.parametrize(
    ("people", "wanted"), [(("ann", "bob"), "settled_by_hand"), (("ann", "ann"), "unknown_outcome")]
)
def test_settled_by_hand_needs_two_people(people: tuple[str, str], wanted: str) -> None:
    journal = [*histories.history("room+ payment?")]
    journal += [act(*pair) for pair in zip(("close-proposed", "close"), people, strict=True)]
    assert standing.classify(job("closed"), journal) == wanted


@pytest.mark.parametrize("state", ["confirmed", "running"])
def test_a_contradiction_is_unknown_until_a_person_has_ruled(state: str) -> None:
    stands = job(state, is_leased=state == "running")
    journal: list[Entry] = histories.history(WHOLE)
    assert standing.classify(stands, journal) != Standing.UNKNOWN_OUTCOME
    journal.append(histories.seen("payment", "late", "refused", ago=60))
    assert standing.classify(stands, journal) is Standing.UNKNOWN_OUTCOME
    journal.append(act("note", "ann", "payment"))
    assert standing.classify(stands, journal) is Standing.UNKNOWN_OUTCOME
    journal.append(act("done", "ann", "payment"))
    assert standing.classify(stands, journal) != Standing.UNKNOWN_OUTCOME


def test_an_undo_that_a_person_ruled_done_completes_a_recovery() -> None:
    journal = [*histories.history("room+ payment+ ticket- ~payment- ~room+")]
    assert standing.classify(job(*BACK), journal) is Standing.UNKNOWN_OUTCOME
    journal.append(act("done", "ann", "payment", "backward"))
    assert standing.classify(job(*BACK), journal) is Standing.COMPLETED_RECOVERY


def money(entries: list[Entry]) -> dict[str, Amounts]:
    return standing.money(operations.fold(entries))


@pytest.mark.parametrize(
    ("text", "captured", "refunded", "at_risk"),
    [
        ("payment+", 12_000, 0, 0),
        ("payment-", 0, 0, 0),
        ("payment?", 0, 0, 12_000),
        ("payment!", 0, 0, 12_000),
        ("payment.", 0, 0, 0),
        ("payment?+", 12_000, 0, 0),
        ("payment+ ~payment+", 12_000, 12_000, 0),
        ("payment+ ~payment?", 12_000, 0, 12_000),
        ("payment+ ~payment-", 12_000, 0, 0),
    ],
)
def test_money_is_what_the_journal_confirms(
    text: str, captured: int, refunded: int, at_risk: int
) -> None:
    found = money(histories.history(text))["EUR"]
    assert found == Amounts(captured, refunded, at_risk)
    assert found.held == captured - refunded


def test_a_contradicted_capture_is_at_risk() -> None:
    journal = [*histories.history("payment+"), histories.seen("payment", "late", "refused")]
    assert money(journal)["EUR"] == Amounts(12_000, 0, 12_000)


def test_an_undo_that_names_no_amount_takes_back_what_its_step_did() -> None:
    journal: list[Entry] = histories.history("payment+")
    journal.append(histories.attempt("payment", 1, Direction.BACKWARD, arguments={"capture": "x"}))
    journal.append(receipt("payment", Direction.BACKWARD))
    assert money(journal)["EUR"] == Amounts(12_000, 12_000, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"amount_minor": True, "currency": "EUR"},
        {"amount_minor": "12000", "currency": "EUR"},
        {"amount_minor": 12_000, "currency": None},
    ],
)
def test_what_is_no_money_is_not_counted(arguments: dict[str, Any]) -> None:
    assert money([histories.attempt("payment", arguments=arguments)]) == {}


def receipt(step: str, direction: Direction, **evidence: Any) -> Receipt:
    return Receipt(step, direction, 1, ReceiptOutcome.CONFIRMED, evidence, histories.NOW)


def test_a_report_adds_up_its_jobs_and_keeps_the_empty_classes() -> None:
    report = standing.Report()
    fee = {"cost": {"amount_minor": 30, "currency": "EUR"}}
    paid: list[Entry] = [histories.attempt("payment"), receipt("payment", Direction.FORWARD, **fee)]
    whole = [*histories.history("room+ ticket+"), *paid]
    report.add(job("confirmed", leases_lost=1, age_seconds=5), whole)
    report.add(job("confirmed", age_seconds=9), whole)
    report.add(parked("worker_lost"), histories.history("room."))
    assert list(report.lines) == list(Standing)
    assert report.total == 3
    line = report.lines[Standing.CONFIRMED]
    assert (line.jobs, line.recovered_forward, line.oldest_seconds) == (2, 1, 9)
    assert line.cost == {"EUR": 60}
    assert line.receipts == {"confirmed": 6}
    assert report.lines[Standing.PARKED_FORWARD].parked == {"worker_lost": 1}
    assert report.lines[Standing.IN_PROGRESS] == standing.Line()

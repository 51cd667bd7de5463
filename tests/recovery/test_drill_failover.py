"""What a failover may cost is judged exactly: the lost tail is counted and reported, and nothing beyond it passes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

import pytest

from recovery import books
from recovery.drills import failover
from recovery.drills.failover import Loss, Tail
from recovery.drills.judge import Job, Witnesses
from recovery.drills.load import Journal, Told

STAYED, GONE = UUID(int=1), UUID(int=2)
CAPTURE, REFUND = f"{STAYED}:capture_payment:forward", f"{STAYED}:capture_payment:backward"
TICKET, LOST_CAPTURE = f"{STAYED}:issue_ticket:forward", f"{GONE}:capture_payment:forward"


@dataclass(frozen=True)
class Case:
    """All that the judgement is given."""

    tail: Tail
    found: Witnesses
    effects: list[books.Effect]
    receipts: list[books.Receipt]

    def judged(self) -> Loss:
        named = books.compare(self.effects, self.receipts, []).differences
        return self.judged_with(named)

    def judged_with(self, named: list[str]) -> Loss:
        return failover.judge_loss(self.tail, self.found, self.effects, self.receipts, named)


def honest() -> Case:
    """Two bookings acknowledged; of one the capture was made before and the ticket after, the other is gone."""
    told = {
        "k1": Told("k1", "", {}, "b1", 20_000),
        "k2": Told("k2", "", {}, "b2", 20_002),
    }
    effects = [
        books.Effect(CAPTURE, "capture", "b1", 20_000, "EUR"),
        books.Effect(LOST_CAPTURE, "capture", "b2", 20_002, "EUR"),
        books.Effect(TICKET, "ticket", "b1"),
    ]
    receipts = [
        books.Receipt(CAPTURE, "capture", "confirmed", 20_000, "EUR"),
        books.Receipt(TICKET, "ticket", "confirmed"),
    ]
    jobs = [Job("k1", STAYED, "confirmed", "b1", 20_000, "EUR")]
    found = Witnesses(Journal(told=told), jobs, receipts, [effects[0], effects[2]])
    return Case(Tail({"k1": "b1", "k2": "b2"}, effects=2), found, effects, receipts)


def refunded_in_the_tail(case: Case) -> Case:
    """The job that stayed had been cancelled and paid back, and knows nothing of it."""
    refund = books.Effect(REFUND, "refund", "b1", 20_000, "EUR")
    effects = [case.effects[0], refund, *case.effects[1:]]
    found = replace(case.found, effects=[effects[0], refund, effects[-1]])
    return replace(case, tail=replace(case.tail, effects=3), found=found, effects=effects)


def asked_again(case: Case) -> Case:
    """The client repeats the key that is gone, and has another booking for it."""
    case.found.journal.told["k2"].booking = "b3"
    case.found.journal.wrong.append("k2: b2 first, then b3")
    job = Job("k2", UUID(int=3), "refused", "b3", 20_002, "EUR")
    return replace(case, found=replace(case.found, jobs=[*case.found.jobs, job]))


def test_the_loss_is_named_by_key_and_by_operation() -> None:
    assert honest().judged() == Loss({"k2": "b2"}, [LOST_CAPTURE], [])


def test_what_was_done_about_a_survivor_in_the_tail_is_reported_too() -> None:
    assert refunded_in_the_tail(honest()).judged() == Loss({"k2": "b2"}, [REFUND, LOST_CAPTURE], [])


def test_a_key_that_is_gone_may_be_asked_for_again() -> None:
    assert asked_again(honest()).judged() == Loss({"k2": "b2"}, [LOST_CAPTURE], [])


def with_effects(case: Case, *effects: books.Effect) -> Case:
    return replace(
        case,
        effects=[*case.effects, *effects],
        found=replace(case.found, effects=[*case.found.effects, *effects]),
    )


def with_job(case: Case, **changes: object) -> Case:
    jobs = [replace(case.found.jobs[0], **changes)]  # type: ignore[arg-type]  # names of it
    return replace(case, found=replace(case.found, jobs=jobs))


def without_receipt(case: Case) -> Case:
    receipts = case.receipts[:1]
    return replace(case, receipts=receipts, found=replace(case.found, receipts=receipts))


def told_otherwise(case: Case) -> Case:
    case.found.journal.wrong.append("k1: b1 first, then b9")
    return case


PLANTED: dict[str, tuple[Callable[[Case], Case], str]] = {
    "a survivor charged twice": (
        lambda c: with_effects(c, c.effects[0]), f"{CAPTURE}: done 2 times"),
    "a lost booking charged twice": (
        lambda c: with_effects(c, c.effects[1]), f"{LOST_CAPTURE}: done 2 times"),
    "a lost booking that is driven on": (
        lambda c: with_effects(c, books.Effect(f"{GONE}:issue_ticket:forward", "ticket", "b2")),
        f"{GONE}:issue_ticket:forward: done after the failover"),
    "an effect afterwards that was not recorded": (
        without_receipt, f"{TICKET}: done after the failover"),
    "a survivor that is not at rest": (
        lambda c: with_job(c, state="running"), f"job {STAYED}: is running"),
    "a survivor at another price": (
        lambda c: with_job(c, amount_minor=1), "k1: told b1 for 20000"),
    "a survivor told otherwise": (told_otherwise, "k1: b1 first, then b9"),
}  # fmt: skip


@pytest.mark.parametrize(("plant", "named"), PLANTED.values(), ids=PLANTED)
def test_what_the_limit_does_not_cover_is_a_violation(
    plant: Callable[[Case], Case], named: str
) -> None:
    wrong = plant(honest()).judged().wrong
    assert any(text.startswith(named) for text in wrong), wrong


def test_an_effect_that_the_comparison_passes_over_is_a_violation() -> None:
    loss = honest().judged_with([])
    assert loss.reported == []
    assert loss.wrong == [f"{LOST_CAPTURE}: done without a record of ours, and not reported"]

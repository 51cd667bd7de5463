"""At least eighty deaths of real children and whole workers by SIGKILL, one at each gap of each step in both directions.

A child's death is seen by its watcher; a whole worker dies with its watcher, and only its lease's end gives its job back.
Every booking of a batch ends as if nobody had died, and the sandbox's books agree: one effect per operation, right amounts.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from config import programs
from tests.acceptance.live import CAPTURE, SECURE, TICKET, Agent, Live
from tests.crash import doomed
from tests.crash.doomed import Doom, Who

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]
FIRE_SECONDS, ENDED_SECONDS, PACE_SECONDS = 60.0, 45.0, 0.25
PRICE_MINOR = 20_000


def gaps(points: str, where: str, nth: int = 1, who: Who = "child") -> list[Doom]:
    return [Doom(point, nth, where, who) for point in points.split()]


JOB = "promote.before promote.after claim.before claim.after renew.before renew.after"
CALL, LOCAL = "call.before call.after", "local.before local.after_handlers local.after"
FORWARD = [
    *gaps(JOB, "forward"),
    *(gap for n in (1, 2, 3) for gap in gaps("settle.before", f"turn {n} forward", n)),
    *gaps("settle.after", f"{CAPTURE} forward", 1),
    *gaps("settle.after", f"{TICKET} forward", 2),
    *gaps(CALL, f"{CAPTURE} forward", 1),
    *gaps(CALL, f"{TICKET} forward", 2),
    *gaps(LOCAL, "reserve_room forward", 1),
    *gaps(LOCAL, f"{SECURE} forward", 2),
]
BACKWARD = [
    *gaps(JOB, "backward"),
    *(gap for n in (1, 2, 3) for gap in gaps("settle.before", f"turn {n} backward", n)),
    *gaps("settle.after", f"{CAPTURE} backward", 1),
    *gaps(CALL, f"{CAPTURE} backward", 1),
    *gaps(LOCAL, f"{SECURE} backward", 1),
    *gaps(LOCAL, "reserve_room backward", 2),
]
UNKNOWN = gaps("probe.before probe.after", CAPTURE)


def as_workers(dooms: list[Doom]) -> list[Doom]:
    """The same gaps, met by the whole worker: those that leave a job in its hands."""
    held = ("claim.after", "renew.", "settle.", "call.", "local.", "probe.")
    return [Doom(d.point, d.nth, d.where, "worker") for d in dooms if d.point.startswith(held)]


def die(live: Live, agent: Agent, dooms: list[Doom], name: str, place: Path) -> list[UUID]:
    """Start the doomed, book until each has met its point, and kill the workers that only stopped there."""
    bookings: list[UUID] = []
    pace, left = threading.Event(), FIRE_SECONDS
    with doomed.started(live, dooms, name, place) as workers:
        while not all(worker.has_fired() for worker in workers):
            assert left > 0, [str(w.doom) for w in workers if not w.has_fired()]
            bookings += agent.book_many(2)
            pace.wait(PACE_SECONDS)
            left -= PACE_SECONDS
        for worker in workers:
            if worker.doom.who == "worker":
                worker.kill()
        # The doomed that lost a child go on as ordinary workers until the others have ended.
        live.ended(bookings, ENDED_AS[name], ENDED_SECONDS)
    return bookings


ENDED_AS = {programs.WORKER: "confirmed", programs.COMPENSATION: "compensated"}


def check(live: Live, agent: Agent, bookings: list[UUID], kinds: list[str]) -> None:
    live.assert_books_agree(bookings)
    assert [kind for booking in bookings for kind in live.kinds(booking)] == kinds * len(bookings)
    is_confirmed = "ticket" in kinds
    assert live.net(bookings) == PRICE_MINOR * len(bookings) * is_confirmed
    assert agent.small.taken()[:2] == [len(bookings) * is_confirmed] * 2


def run(
    live: Live, dooms: list[Doom], name: str, place: Path, rules: Callable[[], None] = lambda: None
) -> None:
    rules()
    agent = live.agent(capacity=2_000)
    kinds = ["capture", "ticket"] if name == programs.WORKER else ["capture", "refund"]
    with doomed.recorded(dooms, ENDED_AS[name]):
        check(live, agent, die(live, agent, dooms, name, place), kinds)


@pytest.mark.parametrize("dooms", doomed.batches([*FORWARD, *as_workers(FORWARD)]), ids=str)
def test_deaths_on_the_way_forward(healthy: Live, tmp_path: Path, dooms: list[Doom]) -> None:
    run(healthy, dooms, programs.WORKER, tmp_path)


@pytest.mark.parametrize("dooms", doomed.batches([*BACKWARD, *as_workers(BACKWARD)]), ids=str)
def test_deaths_on_the_way_back(healthy: Live, tmp_path: Path, dooms: list[Doom]) -> None:
    def refuse() -> None:
        healthy.rule("refuse", match="ticket", code="no_ticket")

    run(healthy, dooms, programs.COMPENSATION, tmp_path, refuse)


def test_deaths_around_a_question(healthy: Live, tmp_path: Path) -> None:
    def lose() -> None:
        healthy.rule("drop_after", match="capture")

    dooms = [*UNKNOWN, *as_workers(UNKNOWN)]
    run(healthy, dooms, programs.WORKER, tmp_path, lose)


def test_deaths_around_a_question_about_a_refund(healthy: Live, tmp_path: Path) -> None:
    def lose() -> None:
        healthy.rule("refuse", match="ticket", code="no_ticket")
        healthy.rule("drop_after", match="refund")

    dooms = [*UNKNOWN, *as_workers(UNKNOWN)]
    run(healthy, dooms, programs.COMPENSATION, tmp_path, lose)


def test_there_are_enough_deaths() -> None:
    both = [*FORWARD, *BACKWARD, *UNKNOWN, *UNKNOWN]
    assert len(both) + len(as_workers(both)) >= 80

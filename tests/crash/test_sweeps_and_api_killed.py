"""Real deaths beside the path of a job: a sweep's worker in the middle of a sweep, and the API in the middle of a request.

A sweep that dies leaves its work to the next one, done once; a client whose connection breaks asks again under the same key.
"""

from pathlib import Path
from uuid import UUID, uuid4

import httpx2
import pytest

from bookings import rooms
from bookings.models import Booking
from config import programs
from ledger import crashpoints, models, sql
from ledger.outcomes import Confirmed
from ledger.saga import LOCAL, Call, Saga, Step
from tests import factories, hotels
from tests.acceptance import live as acceptance
from tests.acceptance.live import Agent, Live
from tests.crash import doomed
from tests.crash.doomed import Doom

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]
FIRE_SECONDS, ENDED_SECONDS, TRIES = 60.0, 45.0, 8

SWEEPS = [
    Doom(point, 1, "sweep")
    for point in (
        "reclaim.before", "reclaim.after", "reconcile.before", "reconcile.after", "turn.before", "turn.after",
        "ring.after_select", "holds.before", "holds.after", "overdue.before", "overdue.after", "unsupported.before",
        "unsupported.after",
    )
]  # fmt: skip
API = [
    Doom(point, 1, "request")
    for point in (
        "booking.before_insert", "submit.before_insert", "submit.after_insert", "booking.after_insert",
        "submit.after_commit", "publish.before", "publish.after", "booking.before_response",
    )
]  # fmt: skip

# A job for each of the rare sweeps: why it parks, and what makes it old enough for that, and not so old that the API
# takes it for a backlog.
STUCK = {
    "deadline_after_pivot": "pivot_sent = true, deadline_at = ledger_now() - interval '2 hours',"
    " due_at = ledger_now() + interval '1 hour'",
    "unsupported_version": "due_at = ledger_now() - interval '20 minutes'",
}
HEARD_LONG_AGO = """
UPDATE ledger_knownversion SET reported_at = ledger_now() - interval '1 hour' WHERE saga = ''
"""


def hold_past_its_time(agent: Agent) -> str:
    """A hold that the sweep has to give up."""
    holder = f"{uuid4()}:reserve_room:forward"
    stay = agent.small.stay(offset=5)
    rooms.hold(Call(holder, uuid4(), "tenant", 1, stay, 5.0))
    hotels.pass_expiry(holder)
    return holder


def submit_stuck(change: str) -> UUID:
    """A job that no build of the fleet knows, of long ago: left alone until a sweep puts it in front of a person."""
    unknown = Saga(
        "crash.unknown", version=1, steps=[Step("only", do=nobody, undo=nobody, effect=LOCAL)]
    )
    job = factories.submit(unknown)
    sql.fetch(HEARD_LONG_AGO)
    sql.fetch(f"UPDATE ledger_job SET acting_fence = fence, {change} WHERE id = %s", [job])  # noqa: S608
    return job


def nobody(call: Call) -> Confirmed:
    raise NotImplementedError(call.operation_id)


@pytest.mark.parametrize("dooms", doomed.batches(SWEEPS), ids=str)
def test_deaths_of_sweeps(healthy: Live, tmp_path: Path, dooms: list[Doom]) -> None:
    agent, bookings, holders = healthy.agent(capacity=2_000), [], list[str]()
    stuck: dict[UUID, str] = {}
    with (
        doomed.recorded(dooms, "confirmed"),
        doomed.started(healthy, dooms, programs.SWEEPS, tmp_path) as workers,
    ):

        def all_fired() -> bool:
            holders.append(hold_past_its_time(agent))
            stuck.update((submit_stuck(change), reason) for reason, change in STUCK.items())
            return all(worker.has_fired() for worker in workers)

        bookings += agent.book_many(2)
        acceptance.until(all_fired, FIRE_SECONDS, lambda: str([str(d) for d in dooms]))
        bookings += agent.book_many(2)
        healthy.ended(bookings, "confirmed", ENDED_SECONDS)
        acceptance.until(lambda: agent.small.taken()[5] == 0, ENDED_SECONDS)
        assert {hotels.reservation(holder).state for holder in holders} == {"expired"}
        healthy.ended_jobs(list(stuck), "parked", ENDED_SECONDS)
        parked = models.Job.objects.filter(id__in=stuck).values_list("id", "parked_reason", "fence")
        assert set(parked) == {(job, reason, 1) for job, reason in stuck.items()}, "each once"
        healthy.assert_books_agree(bookings)


def book_until_told(agent: Agent, key: str, *, in_bulk: bool) -> UUID:
    """As a client that hears nothing: the same request again, under the same key."""
    for _ in range(TRIES):
        try:
            return agent.book_in_bulk(key) if in_bulk else agent.book(key)
        except httpx2.TransportError:
            continue
    raise AssertionError(f"no answer in {TRIES} tries")


@pytest.mark.parametrize("doom", API, ids=str)
def test_deaths_of_the_api(healthy: Live, tmp_path: Path, doom: Doom) -> None:
    fired = tmp_path / "fired"
    armed = {crashpoints.ARM_VARIABLE: doom.armed, crashpoints.ONCE_VARIABLE: str(fired)}
    healthy.end(programs.API)
    healthy.start(programs.API, env=armed)
    agent = healthy.agent(capacity=5)
    in_bulk = (
        doom.point == "booking.after_insert"
    )  # a booking of its own is written and committed by one statement
    with doomed.recorded([doom], "confirmed", who="API"):
        booking = book_until_told(agent, "one-key", in_bulk=in_bulk)
        acceptance.until(fired.exists, FIRE_SECONDS)
        assert book_until_told(agent, "one-key", in_bulk=not in_bulk) == booking
        assert Booking.objects.filter(tenant_id=agent.tenant.id).count() == 1
        healthy.ended([booking], "confirmed", ENDED_SECONDS)
        assert healthy.kinds(booking) == ["capture", "ticket"]
        assert agent.small.taken()[:2] == [1, 1]
        healthy.assert_books_agree([booking])

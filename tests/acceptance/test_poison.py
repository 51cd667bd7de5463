"""A job that kills whichever process drives it is parked after a handful of deaths; the jobs beside it all end.

No beat runs: the watcher alone ends the dead children's leases, as fast as they die.
"""

from collections.abc import Iterator
from uuid import UUID

import pytest

from config import drill_saga, programs
from ledger import models
from ledger.states import ParkedReason
from tests import factories, sagas
from tests.acceptance import live as acceptance
from tests.acceptance.live import Live

pytestmark = pytest.mark.timeout(120)
SOUND = 40
DEATHS_MAX = 5  # two in company, three alone


@pytest.fixture(scope="module")
def running(live: Live) -> Iterator[Live]:
    live.start(programs.WORKER, concurrency=2, env={drill_saga.DRILLS_VARIABLE: "1"})
    with sagas.registered(drill_saga.trip):
        yield live


def submitted(count: int, dies_at: str = "") -> list[UUID]:
    return [factories.submit(drill_saga.trip, {"dies_at": dies_at}) for _ in range(count)]


def states(ids: list[UUID]) -> set[str]:
    return set(models.Job.objects.filter(id__in=ids).values_list("state", flat=True))


@pytest.mark.parametrize("step", ["note", "call"])
def test_it_parks_after_a_few_deaths_and_its_neighbours_are_confirmed(
    running: Live, step: str
) -> None:
    before = submitted(SOUND // 2)
    (poison,) = submitted(1, dies_at=step)
    after = submitted(SOUND // 2)
    running.deliver("forward", 2)
    acceptance.until(lambda: states([poison]) == {"parked"}, 60, lambda: running._explain(poison))
    job = models.Job.objects.get(id=poison)
    assert job.parked_reason == ParkedReason.WORKER_LOST
    assert job.strikes == 3
    assert job.leases_lost <= DEATHS_MAX
    running.ended_jobs([*before, *after], "confirmed", 30)


def test_alone_in_the_system_three_deaths_are_enough(running: Live) -> None:
    (poison,) = submitted(1, dies_at="end")
    running.deliver("forward", 2)
    acceptance.until(lambda: states([poison]) == {"parked"}, 60, lambda: running._explain(poison))
    job = models.Job.objects.get(id=poison)
    assert (job.strikes, job.leases_lost, job.parked_reason) == (3, 3, ParkedReason.WORKER_LOST)
    assert job.direction == "forward"
    assert job.pivot_sent, "it may have been sent: nobody turns it back"

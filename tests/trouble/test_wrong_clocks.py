"""Workers and sweeps whose clock is ten minutes off: no lease of a healthy owner is taken, and a dead one's ends in time.

Only those who judge leases have the wrong clock; the API, beat and the database have the true one.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import UUID

import pytest

from config import programs, soak_place
from ledger import models
from recovery.drills import skew
from tests.acceptance import live as acceptance
from tests.acceptance.live import CAPTURE, STEPS, SWEEP_SECONDS, Agent, Live

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not soak_place.faketime(), reason="libfaketime is not installed here"),
]
LEASE_SECONDS = 5.0  # a healthy owner on a busy machine does not miss it
START_SECONDS = 8.0  # of a new worker on a busy machine; the lease runs out meanwhile
SECONDS = 30.0
JOBS = 6
JUDGES = (programs.WORKER, programs.SWEEPS)


@pytest.fixture(scope="module")
def stack(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API, programs.BEAT)
    return live


@pytest.fixture
def clock(stack: Live, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """What a process under this clock is started with."""
    name: str = request.param
    (tmp_path / "sitecustomize.py").write_text(skew.SLEEP)
    conditions = skew.conditions(soak_place.faketime(), name, tmp_path / "clock")
    yield {**conditions, "LEASE_SECONDS": str(LEASE_SECONDS)}
    stack.be_honest()
    for judge in JUDGES:
        stack.end(judge)
    stack.broker.flushdb()


def assert_each_once(
    live: Live, agent: Agent, booked: list[UUID], lost: Mapping[UUID, int]
) -> None:
    live.assert_each_once(booked, SECONDS)
    jobs = models.Job.objects.filter(tenant=agent.tenant)
    found = dict(jobs.values_list("id", "leases_lost"))
    assert found == {acceptance.job_of(booking): lost.get(booking, 0) for booking in booked}
    assert agent.small.taken()[:2] == [len(booked)] * 2


@pytest.mark.parametrize("clock", ["ten minutes ahead", "ten minutes behind"], indirect=True)
def test_a_clock_that_is_off_takes_no_lease_and_keeps_none(
    stack: Live, clock: dict[str, str]
) -> None:
    live, agent = stack, stack.agent()
    live.start(*JUDGES, env=clock)
    live.rule("delay", match="capture", seconds=1.0)  # so that sweeps pass over it meanwhile
    booked = agent.book_many(JOBS)
    assert_each_once(live, agent, booked, {})

    booked.append(last := agent.book())
    acceptance.until(lambda: acceptance.in_flight([last], CAPTURE) == 1, SECONDS)
    live.kill_all_of(programs.WORKER)
    live.stack.wait_ended(programs.WORKER, 5)
    assert live.job(last).state == "running"
    live.start(programs.WORKER, env=clock)
    live.ended([last], "confirmed", LEASE_SECONDS + 2 * SWEEP_SECONDS + START_SECONDS)
    assert set(acceptance.attempts(last)) == {(step, "forward") for step in STEPS}
    assert_each_once(live, agent, booked, {last: 1})

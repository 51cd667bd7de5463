"""A child of a worker dies by SIGKILL in each gap of a job: the job ends all the same, with one effect per operation.

No beat runs here, so that nothing but the watcher can end the dead child's lease: the sweep and lease expiry have no part
in it. The crash point kills once in the life of the stack; the children that follow are armed too and find it fired.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from config import programs
from ledger import crashpoints
from tests.acceptance import deaths
from tests.acceptance import live as acceptance
from tests.acceptance.live import CAPTURE, TICKET, Agent, Live

pytestmark = pytest.mark.timeout(90)
NEXT_CLAIM_SECONDS = (
    5.0  # the bound that is asserted; 1.5 s is the aim, and what was measured is printed
)
POOL_TICK_SECONDS = 5.0  # with a pool of one, a new child has to be forked first
ENDED_SECONDS = 20.0


@pytest.fixture(scope="module")
def running(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API)
    return live


@pytest.fixture
def fired(tmp_path: Path) -> Path:
    """The file that says that the crash point of this test has done its work."""
    return tmp_path / "fired"


@pytest.fixture
def agent(running: Live, fired: Path) -> Iterator[Agent]:
    """A worker whose point has fired is an ordinary one from then on, and goes on in the next test."""
    yield running.agent()
    running.be_honest()
    if not fired.exists():
        end(running, programs.WORKER)
        end(running, programs.COMPENSATION)


def end(live: Live, name: str) -> None:
    live.end(name)
    live.broker.flushdb()  # a ticket in the hands of a worker killed here would come back in another test


def start_armed(live: Live, name: str, point: str, fired: Path) -> None:
    armed = {
        crashpoints.ARM_VARIABLE: point.replace("@", "=kill@"),
        crashpoints.ONCE_VARIABLE: str(fired),
    }
    end(live, name)
    if name != programs.WORKER and not live.started(programs.WORKER):
        live.spawn(programs.WORKER)
    live.start(name, env=armed)


def assert_next_claim(live: Live, booking: UUID, death: float, fence: int, seconds: float) -> None:
    """Somebody else has claimed the job: its fence was raised for the death and for the new claim."""
    acceptance.until(lambda: live.job(booking).fence >= fence, ENDED_SECONDS)
    measured = time.monotonic() - death
    print(f"next claim {measured:.2f} s after the death")  # noqa: T201  a measured figure
    assert measured <= seconds


@pytest.mark.parametrize(
    ("point", "sent"),
    [
        ("claim.after@1", {}),
        ("local.after_handlers@1", {}),  # reserve_room, nothing committed
        ("local.after@1", {CAPTURE: 2}),  # reserve_room settled, the attempt to capture stored
        ("call.before@1", {CAPTURE: 2}),
        ("call.after@1", {}),  # found by asking, not sent again
        ("settle.after@1", {}),  # the receipt of the capture is stored
        ("local.after_handlers@2", {}),  # secure_room, nothing committed
        ("local.after@2", {TICKET: 2}),
        ("call.before@2", {TICKET: 2}),
        ("call.after@2", {}),
    ],
)
def test_a_child_killed_on_the_way_forward(
    running: Live, agent: Agent, fired: Path, point: str, sent: dict[str, int]
) -> None:
    start_armed(running, programs.WORKER, point, fired)
    with deaths.Death(running.pool()) as child:
        booking = agent.book()
        death = child.wait(ENDED_SECONDS)
    assert fired.exists()

    assert_next_claim(running, booking, death, 3, NEXT_CLAIM_SECONDS)
    running.ended([booking], "confirmed", ENDED_SECONDS)
    job = running.job(booking)
    assert (job.fence, job.leases_lost) == (3, 1)
    assert acceptance.attempts(booking) == {
        (step, "forward"): sent.get(step, 1) for step in acceptance.STEPS
    }
    assert running.kinds(booking) == ["capture", "ticket"]
    assert agent.small.taken()[:2] == [1, 1]
    running.assert_books_agree([booking])


@pytest.mark.parametrize(
    ("point", "refunds"),
    [
        ("claim.after@1", 1),
        ("local.after_handlers@1", 1),  # the undo of secure_room, nothing committed
        ("local.after@1", 2),  # it is undone, the attempt to refund stored
        ("call.before@1", 2),
        ("call.after@1", 1),
        ("settle.after@1", 1),  # the receipt of the refund is stored
        ("local.after_handlers@2", 1),  # the undo of reserve_room, nothing committed
    ],
)
def test_a_child_killed_on_the_way_back(
    running: Live, agent: Agent, fired: Path, point: str, refunds: int
) -> None:
    running.rule("refuse", match="ticket", code="no_ticket")
    start_armed(running, programs.COMPENSATION, point, fired)
    with deaths.Death(running.pool(programs.COMPENSATION)) as child:
        booking = agent.book()
        death = child.wait(ENDED_SECONDS)
    assert fired.exists()

    assert_next_claim(running, booking, death, 4, NEXT_CLAIM_SECONDS + POOL_TICK_SECONDS)
    running.ended([booking], "compensated", ENDED_SECONDS)
    job = running.job(booking)
    assert (job.fence, job.leases_lost) == (4, 1)
    tried = acceptance.attempts(booking)
    assert tried[CAPTURE, "backward"] == refunds
    assert set(tried.values()) <= {1, refunds}
    assert running.kinds(booking) == ["capture", "refund"]
    assert running.net([booking]) == 0
    assert agent.small.taken()[:2] == [0, 0]
    running.assert_books_agree([booking])


@pytest.mark.parametrize(
    ("name", "point", "state"),
    [
        (programs.WORKER, "settle.after@2", "confirmed"),
        (programs.COMPENSATION, "local.after@2", "compensated"),
    ],
)
def test_a_child_killed_right_after_the_end_changes_nothing(
    running: Live, agent: Agent, fired: Path, name: str, point: str, state: str
) -> None:
    if state == "compensated":
        running.rule("refuse", match="ticket", code="no_ticket")
    start_armed(running, name, point, fired)
    with deaths.Death(running.pool(name)) as child:
        booking = agent.book()
        child.wait(ENDED_SECONDS)
    seen = (running.job(booking).state, acceptance.outcomes(booking), running.effects(booking))
    assert seen[0] == state
    lane = "forward" if name == programs.WORKER else "compensation"
    running.deliver(lane, times=2)
    acceptance.until(lambda: running.is_silent(lane), ENDED_SECONDS)
    job = running.job(booking)
    assert (job.state, acceptance.outcomes(booking), running.effects(booking)) == seen
    assert job.leases_lost == 0
    running.assert_books_agree([booking])


def test_a_child_told_to_end_dies_and_its_parent_goes_on(running: Live, agent: Agent) -> None:
    """TERM is for the parent; in a child it is a crash like any other."""
    end(running, programs.WORKER)
    running.start(programs.WORKER)
    running.rule("delay", match="capture", times=1, seconds=1.0)
    with deaths.Death(running.pool()) as child:
        booking = agent.book()
        acceptance.until(lambda: acceptance.in_flight([booking], CAPTURE) == 1, ENDED_SECONDS)
        deaths.signal_all(running.pool(), signal.SIGTERM)
        death = child.wait(1.0)
    assert running.stack.ended() == {}
    assert_next_claim(running, booking, death, 3, NEXT_CLAIM_SECONDS + POOL_TICK_SECONDS)
    running.ended([booking], "confirmed", ENDED_SECONDS)
    assert running.kinds(booking) == ["capture", "ticket"]
    running.assert_books_agree([booking])


def test_a_point_fires_once_for_all_processes(fired: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crashpoints, "_armed", {})
    armed = {crashpoints.ARM_VARIABLE: "claim.after=error@2", crashpoints.ONCE_VARIABLE: str(fired)}
    crashpoints.arm_from_environment(armed)
    crashpoints.reach("claim.after")
    assert not fired.exists()
    with pytest.raises(crashpoints.CrashPointError):
        crashpoints.reach("claim.after")
    assert fired.exists()

    crashpoints.arm_from_environment(armed)  # as in the child that takes the dead one's place
    for _ in range(3):
        crashpoints.reach("claim.after")

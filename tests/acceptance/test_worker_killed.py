"""A whole worker, parent and children, dies by SIGKILL in the middle of a step: a new worker ends the job when the lease is
over, with one effect per operation, whether a request on the wire arrives before the new worker asks or long after.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from config import programs
from ledger import checks, crashpoints, models
from tests import drives
from tests.acceptance import deaths
from tests.acceptance import live as acceptance
from tests.acceptance.live import (
    CAPTURE,
    LATE,
    LEASE_SECONDS,
    SOON,
    STEPS,
    SWEEP_SECONDS,
    TICKET,
    Live,
)

pytestmark = pytest.mark.timeout(90)
START_SECONDS = 6.0  # of a new worker on a busy machine; the lease runs out meanwhile
BOUND_SECONDS = LEASE_SECONDS + 2 * SWEEP_SECONDS + START_SECONDS


@pytest.fixture(scope="module")
def stack(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API, programs.SWEEPS, programs.BEAT)
    return live


@pytest.fixture
def running(stack: Live) -> Iterator[Live]:
    yield stack
    stack.be_honest()
    stack.end(programs.WORKER)


def kill_and_replace(live: Live, booking: UUID, *, watcher_too: bool) -> None:
    """Kill the worker and start another; the job must be confirmed within the bound."""
    watcher = live.watcher()
    killed = time.monotonic()
    live.stack.kill(programs.WORKER, group=True)
    if watcher_too:
        deaths.signal_all([watcher], signal.SIGKILL)
    assert live.stack.wait_ended(programs.WORKER, 5) == -signal.SIGKILL
    assert live.job(booking).state in {"running", "queued"}
    live.start(programs.WORKER)
    live.ended([booking], "confirmed", BOUND_SECONDS)
    seconds = time.monotonic() - killed
    print(f"ended {seconds:.2f} s after the kill")  # noqa: T201  a measured figure
    assert seconds <= BOUND_SECONDS
    assert live.job(booking).leases_lost == 1


@pytest.mark.parametrize(
    ("kind", "step", "manner", "sent", "watcher_too"),
    [
        ("capture", CAPTURE, SOON, 1, False),  # found by asking
        ("capture", CAPTURE, SOON, 1, True),
        ("capture", CAPTURE, LATE, 2, True),  # sent again under its own id; the first one lands after it
        ("ticket", TICKET, SOON, 1, True),
        ("ticket", TICKET, LATE, 2, True),
    ],
)  # fmt: skip
def test_a_worker_killed_while_a_call_is_on_the_wire(
    running: Live, kind: str, step: str, manner: dict[str, Any], sent: int, watcher_too: bool
) -> None:
    running.start(programs.WORKER)
    running.rule(match=kind, times=1, **manner)
    agent = running.agent()
    booking = agent.book()
    acceptance.until(lambda: kind in [r["kind"] for r in running.requests(booking)], 10)
    assert acceptance.in_flight([booking], step) == 1
    assert running.job(booking).state == "running"

    kill_and_replace(running, booking, watcher_too=watcher_too)
    running.control("release")
    tried = {(name, "forward"): 1 for name in STEPS} | {(step, "forward"): sent}
    assert acceptance.attempts(booking) == tried
    assert running.kinds(booking) == ["capture", "ticket"]
    assert running.net([booking]) == 20_000
    assert agent.small.taken()[:2] == [1, 1]
    running.assert_books_agree([booking])


@pytest.mark.parametrize(("nth", "settled"), [(1, []), (2, ["reserve_room", CAPTURE])])
def test_a_worker_killed_inside_a_local_step(
    running: Live, tmp_path: Path, nth: int, settled: list[str]
) -> None:
    """The handler has run, and the child is stopped before the commit: the whole transaction is gone with it."""
    fired = tmp_path / "fired"
    armed = {
        crashpoints.ARM_VARIABLE: f"local.after_handlers=pause@{nth}",
        crashpoints.ONCE_VARIABLE: str(fired),
    }
    running.start(programs.WORKER, env=armed)
    agent = running.agent()
    booking = agent.book()
    acceptance.until(fired.exists, 10)
    assert [step for step, _, _ in acceptance.outcomes(booking)] == settled

    kill_and_replace(running, booking, watcher_too=True)
    assert acceptance.attempts(booking) == {(name, "forward"): 1 for name in STEPS}
    assert running.kinds(booking) == ["capture", "ticket"]
    assert agent.small.taken()[:2] == [1, 1]
    running.assert_books_agree([booking])


def how_leases_ended(live: Live, booking: UUID) -> set[str]:
    rows = models.Sighting.objects.filter(job=live.job(booking), kind="sender_lost")
    return {row.evidence["how"] for row in rows}


def test_a_child_whose_death_nobody_sees_and_whose_message_is_lost(running: Live) -> None:
    """Its parent lives on, its watcher does not, and nothing is delivered again: the end of the lease is enough."""
    running.start(programs.WORKER)
    running.rule(match="capture", times=1, **SOON)
    agent = running.agent()
    booking = agent.book()
    acceptance.until(lambda: acceptance.in_flight([booking], CAPTURE) == 1, 10)
    deaths.signal_all([running.watcher()], signal.SIGKILL)
    killed = time.monotonic()
    deaths.signal_all(running.pool(), signal.SIGKILL)
    running.broker.flushdb()
    running.ended([booking], "confirmed", BOUND_SECONDS)
    assert time.monotonic() - killed <= BOUND_SECONDS
    assert running.stack.ended() == {}
    assert how_leases_ended(running, booking) == {"lease_expired"}
    assert running.job(booking).leases_lost == 1
    assert running.kinds(booking) == ["capture", "ticket"]
    assert agent.small.taken()[:2] == [1, 1]
    running.assert_books_agree([booking])


# It renews often within a call, and what it does not renew lasts longer than the test.
LONG_LEASE = {"LEASE_SECONDS": "60", "HEARTBEAT_SECONDS": "0.2"}


def lease(live: Live, booking: UUID) -> tuple[Any, ...]:
    job = live.job(booking)
    return job.state, job.owner, job.fence, job.claim_token, job.lease_until


def test_a_worker_of_the_same_name_has_nothing_of_the_one_before(running: Live) -> None:
    """It comes back within the lease, as a pod with a stable name does, and renews what is its own. The end of a lease is
    found though nobody remembers the worker: its builds' rows are gone.
    """
    running.start(programs.WORKER, env=LONG_LEASE)
    running.rule(match="capture", times=1, **LATE)
    agent = running.agent()
    first = agent.book()
    acceptance.until(lambda: acceptance.in_flight([first], CAPTURE) == 1, 10)
    running.kill_all_of(programs.WORKER)
    assert running.stack.wait_ended(programs.WORKER, 5) == -signal.SIGKILL
    left = lease(running, first)

    running.start(programs.WORKER, env=LONG_LEASE)
    running.rule(match="capture", times=1, **SOON)
    second = agent.book()
    owner = acceptance.until(lambda: running.job(second).owner, 10)
    running.ended([second], "confirmed")
    assert lease(running, first) == left
    assert owner != left[1]

    running.control("release")
    models.KnownVersion.objects.all().delete()
    drives.expire_lease(running.job(first).id)
    running.ended([first], "confirmed", BOUND_SECONDS)
    assert how_leases_ended(running, first) == {"lease_expired"}
    assert [running.kinds(booking) for booking in (first, second)] == [["capture", "ticket"]] * 2
    assert agent.small.taken()[:2] == [2, 2]
    running.assert_books_agree([first, second])


def test_the_periods_of_these_tests_are_in_order(settings: Any) -> None:
    for name, value in acceptance.SCALE.items():
        if name != "LOG_LEVEL":
            setattr(settings, name, float(value))
    assert checks.periods() == []
    settings.HEARTBEAT_SECONDS = LEASE_SECONDS  # the control
    assert [error.id for error in checks.periods()] == ["ledger.E020"]

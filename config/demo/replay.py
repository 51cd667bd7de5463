"""The replay: real stays booked again by several clients at once, while the provider misbehaves and
workers are killed.

Kept here: the clients stop when the demo stops, whatever the reason; a kill is made only while jobs
are running, so that it hits something; and the replay is over only when every booking has ended or
waits for a person.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager

from bookings import hotel_data
from config import programs
from config.demo import records
from config.demo.stage import Stage, StageError
from ledger.states import ENDED, JobState
from recovery import clients

BOOKINGS = 300
CLIENTS = 4
PACE_SECONDS = 0.08  # of one client between two bookings
LATENCY_SECONDS = 0.1
FAULT_PROBABILITY = 0.05
SEED = 1987
KILL_CHILD_AT, KILL_WORKER_AT = 80, 180  # bookings accepted
SETTLE_SECONDS = 60.0
FIND_SECONDS = 10.0
OUTCOMES = ("confirmed", "compensated", "refused", "parked")  # shown also where there is none
TITLE = f"{BOOKINGS} real bookings under faults"
DONE = (
    "Clients book what a real hotel's guests once booked. One provider call in twenty is refused, one in twenty "
    "gets no answer; a worker process is killed, and later a whole worker."
)
WHY = "Every booking ended, and each charge, refund, ticket and room night is in both books exactly once."


class RejectedError(Exception):
    """The API did not accept real bookings."""

    def __init__(self, answers: Counter[str]) -> None:
        super().__init__(f"bookings that the API did not accept: {dict(answers)}")


def run(stage: Stage) -> Counter[str]:
    """Book, disturb, wait; how the bookings ended, by state."""
    stage.sandbox.set_latency(LATENCY_SECONDS, 0.5)
    stage.sandbox.misbehave(*_faults(), seed=SEED)
    first = len(stage.booked)
    with _clients(stage) as posting:
        _disturb(stage, first)
        stage.wait(
            "every booking accepted",
            lambda: all(f.done() for f in posting),
            SETTLE_SECONDS,
            _show(stage, first),
        )
        rejected = Counter(text for f in posting if (text := f.result()))
    if rejected:
        raise RejectedError(rejected)
    stage.stack.wait_ready(programs.WORKER)
    _settle(stage, first)
    stage.sandbox.misbehave()
    stage.sandbox.set_latency(0.0, 0.0)
    states = records.count_states(stage.booked[first:])
    return Counter(
        {name: states[name] for name in (*OUTCOMES, *sorted(states.keys() - {*OUTCOMES}))}
    )


def _settle(stage: Stage, first: int) -> None:
    """Wait, but not for ever: what is not settled by then is named by the comparison of the books."""
    show = _show(stage, first)
    try:
        stage.wait("every booking settled", lambda: _is_over(stage, first), SETTLE_SECONDS, show)
    except StageError as late:
        stage.screen.note(str(late))


def _faults() -> list[dict[str, object]]:
    """One refusal and one lost reply in twenty, of captures and tickets alike."""
    return [
        {"name": f"{do}-{kind}", "do": do, "match": kind, "probability": FAULT_PROBABILITY}
        for kind in ("capture", "ticket")
        for do in ("refuse", "drop_after")
    ]


def _disturb(stage: Stage, first: int) -> None:
    """Kill one child of the worker, and later the whole worker, each in the middle of work."""

    def reached(accepted: int) -> Callable[[], bool]:
        return lambda: len(stage.booked) - first >= accepted and _running(stage, first) > 0

    show = _show(stage, first)
    stage.wait(f"{KILL_CHILD_AT} bookings accepted", reached(KILL_CHILD_AT), SETTLE_SECONDS, show)
    stage.wait(
        "a worker process at work", lambda: stage.kill_busy_children(most=1) == 1, FIND_SECONDS
    )
    stage.screen.note("kill -9 of one worker process, with bookings in its hands")
    stage.wait(f"{KILL_WORKER_AT} bookings accepted", reached(KILL_WORKER_AT), SETTLE_SECONDS, show)
    stage.kill_worker()
    stage.screen.note("kill -9 of the whole worker, parent and children; then it is started again")


@contextmanager
def _clients(stage: Stage) -> Iterator[list[futures.Future[str]]]:
    """Clients that book while the block runs; each future gives "", or what the API said instead."""
    stop = threading.Event()
    with futures.ThreadPoolExecutor(CLIENTS, thread_name_prefix="client") as pool:
        try:
            yield [
                pool.submit(_post, stage, stop, number, stay)
                for number, stay in enumerate(stage.stays[:BOOKINGS])
            ]
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _post(stage: Stage, stop: threading.Event, number: int, stay: hotel_data.Stay) -> str:
    if stop.wait(PACE_SECONDS):
        return "stopped"
    try:
        answer = stage.book(f"replay-{number}", stay)
    except clients.NoAnswerError as error:
        return str(error)
    return "" if answer.status == 202 else f"{answer.status} {answer.body.get('errors', '')}"


def _show(stage: Stage, first: int) -> Callable[[], None]:
    def show() -> None:
        ours = stage.booked[first:]
        stage.screen.count(len(ours), records.count_states(ours))

    return show


def _running(stage: Stage, first: int) -> int:
    return records.count_states(stage.booked[first:])[JobState.RUNNING]


def _is_over(stage: Stage, first: int) -> bool:
    return set(records.count_states(stage.booked[first:])) <= {*ENDED, JobState.PARKED}

"""A real sandbox process for the provider tests, and calls as the engine would make them.

One process serves the whole session; each test begins with honest manners and uses operation ids
of its own, so that the books can be asked for exactly what it did. `start_sandbox` is for tests
that end one on purpose.
"""

import dataclasses
import itertools
import json
import os
import select
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bookings import payments, tickets
from ledger import outcomes, saga

READY_SECONDS = 15
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class RunningSandbox:
    """A sandbox process, with its control endpoints and its books at hand."""

    store: Path
    process: subprocess.Popen[str]
    port: int
    client: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = httpx2.Client(base_url=self.url, trust_env=False, timeout=10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def control(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.client.post(f"/control/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def rule(self, do: str, **rule: Any) -> None:
        self.control("rules", rules=[{"do": do, **rule}])

    def effects(self, operation_id: str) -> list[dict[str, Any]]:
        return self._books("effects", operation_id)

    def requests(self, operation_id: str) -> list[dict[str, Any]]:
        return self._books("requests", operation_id)

    def summary(self) -> dict[str, Any]:
        return dict(self.client.get("/books/summary").json())

    def be_honest(self) -> None:
        self.client.delete("/control/rules")
        self.control("up")
        self.control("latency", mean_seconds=0)
        self.control("forget_keys", lifetime_seconds=None, no_idempotency=False)

    def stop(self) -> int:
        self.client.close()
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        try:
            return self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(10)
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()

    def _books(self, table: str, operation_id: str) -> list[dict[str, Any]]:
        answer = self.client.get(f"/books/{table}", params={"operation": operation_id})
        return list(answer.json())


def start(store: Path) -> RunningSandbox:
    process = subprocess.Popen(
        [sys.executable, "-m", "bookings.sandbox", "--port", "0", "--store", str(store)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], READY_SECONDS)[0]:
        process.kill()
        process.wait(10)
        pytest.fail(f"the sandbox was not ready within {READY_SECONDS} s")
    return RunningSandbox(store, process, json.loads(process.stdout.readline())["port"])


@pytest.fixture(scope="session")
def session_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSandbox]:
    running = start(tmp_path_factory.mktemp("sandbox") / "books.sqlite")
    yield running
    running.stop()


@pytest.fixture
def sandbox(session_sandbox: RunningSandbox, settings: Any) -> Iterator[RunningSandbox]:
    """An honest sandbox, to which the payment and ticket steps talk."""
    settings.PAYMENT_URL = settings.TICKET_URL = session_sandbox.url
    session_sandbox.be_honest()
    yield session_sandbox
    session_sandbox.be_honest()


@pytest.fixture
def start_sandbox(tmp_path: Path) -> Iterator[Callable[[], RunningSandbox]]:
    """Starts sandboxes over one store, which end with the test at the latest."""
    started: list[RunningSandbox] = []

    def begin() -> RunningSandbox:
        started.append(start(tmp_path / "books.sqlite"))
        return started[-1]

    yield begin
    for running in started:
        running.stop()


@dataclass(frozen=True)
class Operation:
    """One operation of one job, and the ways to do it and to ask about it."""

    kind: str
    do: Callable[[saga.Call], outcomes.Outcome]
    find: Callable[[saga.Call], outcomes.Sighted]
    call: saga.Call

    @property
    def id(self) -> str:
        return self.call.operation_id


_numbers = itertools.count(1)


def call_of(
    step: str, direction: saga.Direction, arguments: Mapping[str, Any], seconds: float = 5.0
) -> saga.Call:
    job_id = uuid.uuid4()
    operation_id = saga.operation_id(job_id, step, direction)
    return saga.Call(operation_id, job_id, "tenant", 1, arguments, seconds)


def capture_of(
    amount_minor: int = 12_345, currency: str = "EUR", seconds: float = 5.0
) -> Operation:
    arguments = {
        "amount_minor": amount_minor,
        "currency": currency,
        "account": "tenant",
        "subject": f"booking-{next(_numbers)}",
    }
    call = call_of("capture_payment", saga.Direction.FORWARD, arguments, seconds)
    return Operation("capture", payments.capture, payments.find, call)


def refund_of(capture: Operation, /, **changes: Any) -> Operation:
    """The refund of a capture, which is done first if it was not."""
    done = capture.do(capture.call)
    assert isinstance(done, outcomes.Confirmed)
    arguments = {
        "capture": done.ref,
        "amount_minor": capture.call.arguments["amount_minor"],
        "currency": capture.call.arguments["currency"],
        "subject": capture.call.arguments["subject"],
        **changes,
    }
    call = call_of(
        "capture_payment", saga.Direction.BACKWARD, arguments, capture.call.timeout_seconds
    )
    return Operation("refund", payments.refund_if_captured, payments.find, call)


def ticket_of(seconds: float = 5.0) -> Operation:
    arguments = {
        "subject": f"booking-{next(_numbers)}",
        "hotel": "resort",
        "room_type": "A",
        "arrival": "2031-05-01",
        "nights": 3,
        "guest": "A. Guest",
    }
    call = call_of("issue_ticket", saga.Direction.FORWARD, arguments, seconds)
    return Operation("ticket", tickets.issue, tickets.find, call)


@pytest.fixture(params=["capture", "refund", "ticket"])
def operation(request: pytest.FixtureRequest, sandbox: RunningSandbox) -> Operation:
    """Each kind of operation in turn, ready to be done for the first time."""
    if request.param == "ticket":
        return ticket_of()
    return capture_of() if request.param == "capture" else refund_of(capture_of())


def hurried(call: saga.Call, seconds: float = 0.6) -> saga.Call:
    """The same call with little time."""
    return dataclasses.replace(call, timeout_seconds=seconds)

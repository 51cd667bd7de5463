"""The sandbox itself: a witness that can be trusted, and whose misbehaviour can be repeated."""

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from bookings.sandbox import misbehave
from ledger import outcomes
from tests.providers import conftest

StartSandbox = Callable[[], conftest.RunningSandbox]


def post_capture(client: httpx2.Client, key: str, amount_minor: int = 100) -> httpx2.Response:
    body = {"amount_minor": amount_minor, "currency": "EUR", "account": "a", "subject": "s"}
    return client.post("/v1/captures", json=body, headers={"Idempotency-Key": key})


def test_answered_effects_survive_sigkill(start_sandbox: StartSandbox):
    running = start_sandbox()
    answered: list[str] = []
    enough = threading.Event()

    def capture(thread: int) -> None:
        with httpx2.Client(base_url=running.url, trust_env=False, timeout=5) as client:
            for number in range(10_000):
                key = f"{thread}:{number}"
                try:
                    if post_capture(client, key).status_code != 201:
                        return
                except httpx2.TransportError:
                    return
                answered.append(key)
                if len(answered) >= 300:
                    enough.set()

    with ThreadPoolExecutor(4) as pool:
        working = [pool.submit(capture, thread) for thread in range(4)]
        assert enough.wait(20)
        running.process.send_signal(signal.SIGKILL)
        for one in working:
            one.result(20)
    assert running.wait() == -signal.SIGKILL

    again = start_sandbox()
    with sqlite3.connect(f"file:{again.store}?mode=ro", uri=True) as store:
        kept = {row[0] for row in store.execute("SELECT operation_id FROM effects")}
    store.close()
    assert set(answered) <= kept
    assert again.summary()["doubled"] == 0
    replayed = post_capture(again.client, answered[0])
    assert replayed.headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_promptly_with_requests_under_way(start_sandbox: StartSandbox, number: int):
    running = start_sandbox()
    running.rule("hang")

    def ask() -> None:
        with (
            httpx2.Client(base_url=running.url, trust_env=False, timeout=20) as client,
            pytest.raises(httpx2.TransportError),
        ):
            post_capture(client, "hanging")

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        limit = time.monotonic() + 10
        while not running.requests("hanging"):
            assert time.monotonic() < limit, "the request never arrived"
        started = time.monotonic()
        running.process.send_signal(number)
        assert running.wait() == 0
        assert time.monotonic() - started < 2
        asking.result(10)


def test_shares_no_code_with_the_engine():
    program = (
        "import sys, bookings.sandbox.__main__;"
        "print([n for n in sys.modules if n.split('.')[0] in"
        " ('ledger', 'recovery', 'config', 'django', 'celery')"
        " or n.startswith('bookings.') and not n.startswith('bookings.sandbox')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=conftest.ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_without_honoured_keys_effects_double_and_the_books_say_so(start_sandbox: StartSandbox):
    running = start_sandbox()
    assert post_capture(running.client, "one").json() == post_capture(running.client, "one").json()
    assert running.summary()["doubled"] == 0

    running.control("forget_keys", older_than_seconds=0)
    post_capture(running.client, "one")
    running.control("forget_keys", no_idempotency=True)
    post_capture(running.client, "two")
    post_capture(running.client, "two")

    assert running.summary() == {
        "requests": 5,
        "captures": {"count": 4, "amount_minor": {"EUR": 400}},
        "refunds": {"count": 0, "amount_minor": {}},
        "tickets": 0,
        "net_minor": {"EUR": 400},
        "doubled": 2,
        "operations": 2,
    }
    assert len(running.effects("one")) == 2


def test_key_lives_as_long_as_told(start_sandbox: StartSandbox):
    running = start_sandbox()
    running.control("forget_keys", lifetime_seconds=0)
    post_capture(running.client, "one")
    post_capture(running.client, "one")
    running.control("forget_keys", lifetime_seconds=60)
    post_capture(running.client, "one")
    assert len(running.effects("one")) == 2


def test_held_request_applies_late_and_only_when_released(sandbox: conftest.RunningSandbox):
    operation = conftest.capture_of()
    sandbox.rule("hold", operation=operation.id, match="capture", seconds=60, times=1)

    outcome = operation.do(operation.call)

    assert isinstance(outcome, outcomes.Unknown)
    assert operation.find(operation.call) == outcomes.NotLanded()
    assert sandbox.effects(operation.id) == []
    assert sandbox.control("release") == {"released": 1}
    assert len(sandbox.effects(operation.id)) == 1
    assert isinstance(operation.find(operation.call), outcomes.Confirmed)


def test_held_request_of_a_tombstoned_operation_is_refused(sandbox: conftest.RunningSandbox):
    operation = conftest.ticket_of()
    sandbox.rule("hold", operation=operation.id, match="ticket", seconds=60)
    operation.do(operation.call)
    sandbox.client.post(f"/v1/tombstones/{operation.id}").raise_for_status()

    sandbox.control("release")

    assert sandbox.effects(operation.id) == []
    assert isinstance(operation.find(operation.call), outcomes.Refused)


def test_held_request_that_comes_after_its_repetition_has_no_second_effect(
    sandbox: conftest.RunningSandbox,
):
    operation = conftest.capture_of()
    sandbox.rule("hold", operation=operation.id, match="capture", seconds=60, times=1)
    operation.do(operation.call)
    assert isinstance(operation.do(operation.call), outcomes.Confirmed)
    sandbox.control("release")
    assert len(sandbox.effects(operation.id)) == 1


@pytest.mark.parametrize(("how", "reason"), [("close", "broken_answer"), ("error", "status_503")])
def test_outage_applies_nothing_and_ends(sandbox: conftest.RunningSandbox, how: str, reason: str):
    operation = conftest.capture_of()
    sandbox.control("down", how=how)
    for ask in (operation.do, operation.find):
        outcome = ask(operation.call)
        assert isinstance(outcome, outcomes.Unknown)
        assert outcome.reason == reason
    assert sandbox.effects(operation.id) == []
    assert {row["action"] for row in sandbox.requests(operation.id)} == {"down"}
    sandbox.control("up")
    assert isinstance(operation.do(operation.call), outcomes.Confirmed)


def test_latency_delays_every_request(sandbox: conftest.RunningSandbox):
    operation = conftest.ticket_of()
    sandbox.control("latency", mean_seconds=0.2, jitter=0.5)
    started = time.monotonic()
    assert isinstance(operation.do(operation.call), outcomes.Confirmed)
    assert time.monotonic() - started >= 0.1


def fired(order: list[str], seed: int) -> dict[str, list[bool]]:
    manners = misbehave.Manners(seed)
    manners.set_rules(
        [{"do": "refuse", "probability": 0.3, "name": "r"}],
        replaces=True,
        known_actions={"refuse": None},
    )
    seen: dict[str, list[bool]] = {}
    for operation in order:
        chosen = manners.choose(kind="capture", subject="s", operation=operation)
        seen.setdefault(operation, []).append(chosen is not None)
    return seen


def test_chance_follows_from_the_seed_whatever_the_order():
    names = [f"job-{number}:capture_payment:forward" for number in range(500)]
    forward = fired(names + names, seed=7)
    assert forward == fired(names[::-1] + names, seed=7)
    assert forward != fired(names + names, seed=8)
    share = sum(sum(each) for each in forward.values()) / 1000
    assert 0.25 < share < 0.35


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"rules": [{"do": "dance"}]}, "rules/0/do"),
        ({"rules": [{"do": "hang"}, {"do": "hang", "probability": 2}]}, "rules/1/probability"),
        ({"rules": [{"do": "hang", "times": -1}]}, "rules/0/times"),
        ({"rules": [{"do": "hang", "match": "captures"}]}, "rules/0/match"),
        ({"rules": [{"do": "hang", "seed": "x"}]}, "rules/0/seed"),
        ({"rules": {}}, "rules"),
        ([], "a JSON object"),
    ],
    ids=str,
)
def test_rules_that_make_no_sense_change_nothing(
    sandbox: conftest.RunningSandbox, body: Any, named: str
):
    sandbox.rule("delay", name="before")
    answer = sandbox.client.post("/control/rules", json=body)
    assert answer.status_code == 400
    assert named in answer.json()["detail"]
    (kept,) = sandbox.client.get("/control/rules").json()["rules"]
    assert kept["name"] == "before"


@pytest.mark.parametrize(
    ("body", "key", "code"),
    [
        (b"{", "k", "invalid_request"),
        (b"[]", "k", "invalid_request"),
        (b"[" * 60_000, "k", "invalid_request"),
        (b'{"amount_minor": 1.5}', "k", "invalid_request"),
        (b"{}", None, "idempotency_key_missing"),
        (b"{}", "k" * 300, "idempotency_key_missing"),
    ],
    ids=str,
)
def test_request_that_cannot_be_read_is_refused_by_name(
    sandbox: conftest.RunningSandbox, body: bytes, key: str | None, code: str
):
    before = sandbox.summary()
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = sandbox.client.post("/v1/captures", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    after = sandbox.summary()
    assert after["captures"] == before["captures"]
    assert after["requests"] == before["requests"] + 1

"""What a client tells us stands in the columns that are meant for it, and nowhere else: no message, log or metric has it.

A whole stack with trips that end in every way, a run and a request that break in the middle, and somebody who listens to all
that the broker is told, monitoring events too.
"""

import base64
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, override
from uuid import UUID, uuid4

import pytest
import redis

from config import programs
from ledger import crashpoints, sql
from tests.acceptance import live as acceptance
from tests.acceptance.live import Agent, Live

pytestmark = pytest.mark.timeout(120)
SECONDS = 30.0
OURS = (programs.API, *programs.WORKERS, programs.BEAT)
BODY = re.compile(r'"body": "([A-Za-z0-9+/=]+)"')
COLUMNS = """
SELECT DISTINCT '{table}.' || e.key FROM {table} t, jsonb_each_text(to_jsonb(t)) e WHERE e.value LIKE '%%' || %s || '%%'
"""
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
# What is meant for each: what was asked and what runs on it, what is sent to who issues the ticket, and the booking's own.
GUEST, REFERENCE, KEY, REASON = (f"{what}-{uuid4().hex}" for what in ("Ann", "trip", "key", "ill"))
MEANT = {
    GUEST: {
        "bookings_booking.guest",
        "ledger_submission.request",
        "ledger_job.input",
        "ledger_attempt.arguments",
    },
    REFERENCE: {"bookings_booking.client_reference", "ledger_submission.request"},
    KEY: {"ledger_submission.key"},
    REASON: {"ledger_job.turned_reason"},
}


class Listener(threading.Thread):
    """Hears every command that any client gives to the broker."""

    def __init__(self, live: Live) -> None:
        super().__init__(name="listener", daemon=True)
        self.heard: list[str] = []
        self._live, self._end, self.is_listening = live, f"end-{uuid4().hex}", threading.Event()
        known = live.broker.connection_pool
        self._pool = redis.ConnectionPool(
            known.connection_class, **{**known.connection_kwargs, "socket_timeout": None}
        )  # however long nothing is said

    @override
    def run(self) -> None:
        with redis.Redis(connection_pool=self._pool).monitor() as monitor:
            self.is_listening.set()
            for command in monitor.listen():
                self.heard.append(str(command))
                if self._end in self.heard[-1]:
                    return

    def end(self) -> None:
        self._live.broker.echo(self._end)
        self.join(SECONDS)
        assert not self.is_alive()
        self._pool.disconnect()


@contextmanager
def listening(live: Live) -> Iterator[Listener]:
    listener = Listener(live)
    listener.start()
    assert listener.is_listening.wait(SECONDS)
    try:
        yield listener
    finally:
        listener.end()


def post(live: Live, agent: Agent, number: int, **stay: Any) -> Any:
    body = {**agent.small.stay(), "guest": GUEST, "client_reference": REFERENCE, **stay}
    headers = {**agent.headers, "Idempotency-Key": f"{KEY}-{number}"}
    return live.api.post("/v1/bookings", json=body, headers=headers)


def book(live: Live, agent: Agent, number: int) -> UUID:
    answer = post(live, agent, number)
    assert answer.status_code == 202, answer.text
    return UUID(answer.json()["id"])


def cancel(live: Live, agent: Agent, booking: UUID) -> None:
    headers = {**agent.headers, "If-Match": "*"}
    path = f"/v1/bookings/{booking}/cancel"
    answer = live.api.post(path, json={"reason": REASON}, headers=headers)
    assert answer.status_code == 202, answer.text


def play(live: Live, agent: Agent, place: Path) -> None:
    """Trips that are confirmed, refused, cancelled and broken off; requests that are refused, broken off and repeated."""
    broken = {
        crashpoints.ARM_VARIABLE: "booking.before_response=error@1",
        crashpoints.ONCE_VARIABLE: str(place / "request"),
    }
    live.start(programs.API, env=broken)
    assert post(live, agent, 0).status_code == 500
    first = book(live, agent, 0)
    assert post(live, agent, 0, nights=1).status_code == 422
    assert post(live, agent, 9, nights=0).status_code == 400
    cancelled = book(live, agent, 1)
    cancel(live, agent, cancelled)
    broken = {
        crashpoints.ARM_VARIABLE: "settle.before=error@2",
        crashpoints.ONCE_VARIABLE: str(place / "run"),
    }
    live.start(programs.COMPENSATION, programs.SWEEPS, programs.BEAT)
    live.start(programs.WORKER, env=broken)
    live.ended([first], "confirmed", SECONDS)
    live.ended([cancelled], "refused", SECONDS)
    live.rule("refuse", match="ticket", code="no_ticket", times=1)
    live.ended([book(live, agent, 2)], "compensated", SECONDS)


def columns_with(text: str) -> set[str]:
    tables = [row[0] for row in sql.fetch(TABLES)]
    return {row[0] for table in tables for row in sql.fetch(COLUMNS.format(table=table), [text])}


def unpacked(command: str) -> str:
    """With the bodies of messages, which kombu packs."""
    bodies = [base64.b64decode(body).decode(errors="replace") for body in BODY.findall(command)]
    return "\n".join([command, *bodies])


def test_what_a_client_tells_us_stands_where_it_is_meant_to(live: Live, tmp_path: Path) -> None:
    live.start(programs.SANDBOX)
    agent = live.agent()
    secret = agent.headers["Authorization"].partition(".")[2]
    with listening(live) as listener:
        play(live, agent, tmp_path)
        acceptance.until(live.is_silent, SECONDS)
    assert (tmp_path / "request").exists()
    assert (tmp_path / "run").exists()

    told = "\n".join(unpacked(command) for command in listener.heard)
    for control in ('[["forward"], {}', '"task-received"', '"task-failed"'):
        assert control in told, "tickets and events for monitors were heard"
    logs = {name: live.stack.log(name).read_text() for name in OURS}
    for name in (programs.API, programs.WORKER):
        assert "CrashPointError" in logs[name], "the control: a traceback was written"
    places: dict[str, str] = {"broker": told, **logs}
    places["metrics"] = live.api.get("/metrics").text
    for path in (live.stack.workdir / "metrics").iterdir():
        places[path.name] = path.read_bytes().decode(errors="replace")
    for text in (*MEANT, secret):
        assert [where for where, said in places.items() if text in said] == []
        assert columns_with(text) == MEANT.get(text, set())

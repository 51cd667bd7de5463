"""The first steps with curl in README, line by line as they stand there, against a running stack."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from bookings.models import RoomType
from config import programs
from tests import hotels
from tests.acceptance.live import Live, until

README = Path(__file__).resolve().parents[2] / "README.md"
BODY = re.compile(r"b'(\{.*?\})'\n")
LATENCY_SECONDS = 0.8  # of the sandbox: long enough for a cancel to come in time


def script() -> str:
    text = README.read_text(encoding="utf-8").partition("## First booking with curl")[2]
    return text.partition("```sh\n")[2].partition("```")[0]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def run(lines: str, env: dict[str, str], output: Path) -> Iterator[None]:
    """In one shell; the listener that it starts ends with the block."""
    with output.open("wb") as stdout:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", f"{lines}\nwait"], env={**os.environ, **env}, stdout=stdout,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def values(output: Path) -> list[dict[str, Any]]:
    """The endpoint and the bookings among all that was printed."""
    found, decoder, text = [], json.JSONDecoder(), output.read_text()
    while (start := text.find('{"')) >= 0:
        value, end = decoder.raw_decode(text[start:])
        found += [value] if "links" in value else []
        text = text[start + end :]
    return found


def webhooks(output: Path) -> list[tuple[dict[str, str], bytes]]:
    """(headers, body) of every request that the listener printed."""
    found = []
    for block in output.read_text().split("Host: ")[1:]:
        head, _, body = block.partition("\n\n")
        lines = [line.partition(": ") for line in head.splitlines() if ": " in line]
        if quoted := BODY.search(body):
            sent = {name.lower(): value for name, _, value in lines}
            found.append((sent, quoted[1].encode()))
    return found


def test_it_is_ten_lines_at_the_most() -> None:
    assert 0 < len(script().splitlines()) <= 10


@pytest.mark.timeout(120)
def test_every_line_does_what_is_said(live: Live, tmp_path: Path) -> None:
    port = free_port()
    told = {
        "WEBHOOK_HTTP": "true",
        "WEBHOOK_NETWORKS": "127.0.0.0/8",
        "WEBHOOK_PORTS": str(port),
    }
    live.start(programs.SANDBOX)
    live.start(*programs.START_ORDER[1:], env=told)
    live.control("latency", mean_seconds=LATENCY_SECONDS)
    small = hotels.make(code="RESORT", capacity=50)
    RoomType.objects.filter(hotel=small.hotel).update(code="A")
    agent = live.agent()
    env = {
        "KEY": agent.headers["Authorization"].removeprefix("Bearer "),
        "ARRIVAL": small.first.isoformat(),
    }
    lines = script().replace("http://127.0.0.1:8000", live.stack.api_url).replace("9000", str(port))
    output = tmp_path / "output"
    with run(lines, env, output):
        until(lambda: len(webhooks(output)) == 2, 60, output.read_text)
    endpoint, booked, cancelled = values(output)
    assert (booked["state"], booked["outcome_known"]) == ("confirmed", True)
    assert cancelled["state"] == "compensating"
    said = [Webhook(endpoint["secret"]).verify(body, head) for head, body in webhooks(output)]
    ended = {one["data"]["booking_id"]: one["type"] for one in said}
    assert ended.pop(booked["id"]) == "booking.confirmed"
    # By how far it had come: there was nothing to undo, or it was undone.
    assert ended.pop(cancelled["id"]) in ("booking.refused", "booking.compensated")

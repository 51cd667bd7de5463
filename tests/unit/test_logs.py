"""Logs are JSON lines, and a field that nobody allowed is redacted: an allow-list, because a deny-list forgets."""

import json
import logging
import subprocess
import sys
from typing import Any

import pytest

from config import logs
from ledger import telemetry

CANARY = "canary-4b1f"
PROGRAM = f"""
import logging
from config import logs
logs.configure("INFO")
from ledger import telemetry
telemetry.emit("job.accepted", saga="trip", guest="{CANARY}", token="{CANARY}")
logging.getLogger("celery").info("task %s", "drive", extra={{"argsrepr": "{CANARY}"}})
try:
    secret = "{CANARY}"
    raise ValueError("broken")
except ValueError:
    logging.getLogger("amends").exception("request.failed")
"""


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True
    )
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_every_line_is_json_with_event_level_and_time(lines: list[dict[str, Any]]) -> None:
    assert [line["event"] for line in lines] == ["job.accepted", "task drive", "request.failed"]
    assert all({"level", "timestamp", "logger"} <= line.keys() for line in lines)


def test_fields_outside_the_list_are_redacted_and_those_inside_are_kept(
    lines: list[dict[str, Any]],
) -> None:
    accepted = lines[0]
    assert accepted["saga"] == "trip"
    assert (accepted["guest"], accepted["token"]) == (logs.REDACTED, logs.REDACTED)
    kept = [{k: v for k, v in line.items() if k != "exception"} for line in lines]
    assert CANARY not in json.dumps(kept)


def test_a_traceback_shows_where_and_not_the_values(lines: list[dict[str, Any]]) -> None:
    assert "ValueError: broken" in lines[2]["exception"]


def test_an_event_outside_the_catalogue_is_a_programmers_error() -> None:
    with pytest.raises(AssertionError, match=r"job\.vanished"):
        telemetry.emit("job.vanished")


def test_every_event_of_the_catalogue_is_a_noun_and_a_past_participle() -> None:
    assert all(event.count(".") == 1 for event in telemetry.EVENTS)
    assert logging.getLogger("httpx2").level == logging.WARNING

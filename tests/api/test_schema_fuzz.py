"""schemathesis against the served schema: whatever it makes of it, no 5xx, and no answer that the schema does not describe.

Against a real gunicorn over a real database, with a hotel, a booking and an endpoint. `FUZZ_REQUESTS` says how many requests
there are at least; `make fuzz` sends 5,000.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bookings.models import ApiKey, Scope
from config import programs
from tests.acceptance.conftest import live
from tests.acceptance.live import Agent, Live

__all__ = ["live"]
ROOT = Path(__file__).resolve().parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")
KNOWN = re.compile(r"\$[A-Z]+")
REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "500"))
# The phases that count nothing send about so many; each example of an operation is about so many more.
EDGES, EACH = 900, 7
SEED = 20
COUNTED = re.compile(r"(\d+) generated")
SETTINGS = {
    "WRONG_KEYS_PER_MINUTE": "1000000",
    "OPEN_JOBS_MAX": "0",
    "WEBHOOK_HTTP": "true",
    "WEBHOOK_NETWORKS": "127.0.0.0/8",
}


def fuzz(live: Live, agent: Agent, key: str, place: Path, *options: str) -> int:
    """How many requests were sent with this key; the owner of what is there is the agent."""
    hook = {"url": "http://127.0.0.1:443/hook"}
    endpoint = live.api.post("/v1/webhooks", json=hook, headers=agent.headers)
    known = {
        "$BOOKING": str(agent.book()),
        "$ENDPOINT": endpoint.json()["id"],
        "$HOTEL": agent.small.hotel.code,
    }
    config = place / "schemathesis.toml"
    config.write_text(KNOWN.sub(lambda name: known[name[0]], CONFIG.read_text()))
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run",
        f"{live.stack.api_url}/v1/schema", "--seed", str(SEED), "--no-color",
        "--continue-on-failure", "--header", f"Authorization: Bearer {key}", *options,
    ]  # fmt: skip
    env = {**os.environ, "HOME": str(place), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    sent = COUNTED.search(run.stdout)
    assert sent is not None, run.stdout
    return int(sent[1])


@pytest.mark.timeout(3_000)
def test_nothing_that_is_sent_gets_an_answer_that_is_not_described(
    live: Live, tmp_path: Path
) -> None:
    """With a key that may do all, and at the edges with one that may only read."""
    live.start(programs.API, env=SETTINGS)
    agent, other = live.agent(), live.agent()
    count = max(5, (REQUESTS - EDGES) // EACH)
    key = agent.headers["Authorization"].removeprefix("Bearer ")
    assert fuzz(live, agent, key, tmp_path, "--max-examples", str(count)) >= REQUESTS
    reading = {"tenant": other.tenant, "name": "reads", "scopes": [Scope.READ.value]}
    _, key = ApiKey.objects.create_key(**reading)
    assert fuzz(live, other, key, tmp_path, "--phases", "coverage") > 0

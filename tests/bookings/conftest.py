"""A sandbox process for the trips that run through the real engine."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 15
STOP_SECONDS = 10


@pytest.fixture(scope="session")
def provider_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("books") / "books.sqlite"
    process = subprocess.Popen(
        [sys.executable, "-m", "bookings.sandbox", "--port", "0", "--store", str(store)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], READY_SECONDS)[0], "the sandbox is not ready"
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)
        process.stdout.close()


@pytest.fixture
def provider(provider_url: str, settings: Any) -> Iterator[httpx2.Client]:
    """The honest stand-in provider, at its control door; trips are sent to it without waiting between attempts."""
    settings.PAYMENT_URL = settings.TICKET_URL = provider_url
    settings.BACKOFF_SECONDS = 0.0
    # It misbehaves towards one booking at a time here: what that does to all others is the matter of the tests of limits.
    settings.PROVIDER_THROTTLE_SECONDS_MAX, settings.PROVIDER_FAILURES_MAX = 0.0, 10_000
    with httpx2.Client(base_url=provider_url, trust_env=False, timeout=10) as client:
        client.delete("/control/rules")
        yield client
        client.delete("/control/rules")

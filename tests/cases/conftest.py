"""A real provider process for the cases, over a real database; nothing waits between attempts unless a test says so."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests import hotels
from tests.cases.trips import Stage
from tests.providers.conftest import RunningSandbox, sandbox, session_sandbox

__all__ = ["sandbox", "session_sandbox"]


@pytest.fixture
def stage(database: None, sandbox: RunningSandbox, settings: Any) -> Iterator[Stage]:
    settings.BACKOFF_SECONDS = 0.0
    yield Stage(sandbox, hotels.make(nights=2, capacity=500))
    sandbox.control("release")  # what a failed test has left on the wire

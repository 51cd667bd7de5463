"""The healthy stack that the deaths happen beside: one for the module."""

from collections.abc import Iterator

import pytest

from config import programs
from tests.acceptance.conftest import live
from tests.acceptance.live import Live
from tests.crash import doomed

__all__ = ["live"]
ONE_JOB = {"SLOTS": "1"}  # so that the doomed get some


@pytest.fixture(scope="module")
def stack(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API, *programs.WORKERS, programs.BEAT, env=ONE_JOB | doomed.ALL_OFTEN)
    return live


@pytest.fixture
def healthy(stack: Live) -> Iterator[Live]:
    stack.be_honest()
    yield stack
    stack.be_honest()
    assert stack.stack.ended() == {}, "nothing but the doomed may end"

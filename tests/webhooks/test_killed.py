"""Whoever sends may be killed at any moment; the event is told all the same."""

import pytest

from tests.webhooks import killed
from tests.webhooks.tenants import Told

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("point", killed.TOLD)
def test_a_sender_that_is_killed_loses_nothing(told: Told, point: str) -> None:
    killed.survive(told, point)

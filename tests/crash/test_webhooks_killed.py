"""The points of webhooks for the run file: the same deaths as in `tests/webhooks`, each a case of its own."""

import pytest

from tests.crash import doomed
from tests.crash.doomed import Doom
from tests.webhooks import killed
from tests.webhooks.conftest import receiver, small, told
from tests.webhooks.tenants import Told

__all__ = ["receiver", "small", "told"]
pytestmark = [pytest.mark.crash, pytest.mark.timeout(60)]
POINTS = [point for point in killed.TOLD if point != killed.ON_THE_WIRE]


@pytest.mark.parametrize("point", POINTS)
def test_a_sender_that_is_killed_loses_nothing(told: Told, point: str) -> None:
    with doomed.recorded([Doom(point, 1, "sweep")], "parked", who="webhooks"):
        killed.survive(told, point)

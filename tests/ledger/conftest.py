"""Engine tests wait for no backoff; the tests of backoff set their own."""

import pytest
from pytest_django.fixtures import Settings


@pytest.fixture(autouse=True)
def no_backoff(settings: Settings) -> None:
    settings.BACKOFF_SECONDS = 0.0

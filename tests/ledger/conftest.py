"""Engine tests wait for no backoff; the tests of backoff set their own."""

import pytest


@pytest.fixture(autouse=True)
def no_backoff(settings: object) -> None:
    settings.BACKOFF_SECONDS = 0.0  # type: ignore[attr-defined]  pytest-django's wrapper

"""Settings of webhooks out of order are refused, and those of development are warned of before a deployment."""

import pytest
from pytest_django.fixtures import Settings

from config import checks


def test_as_they_come_there_is_nothing_to_say() -> None:
    assert checks.webhooks() == checks.webhooks_of_development() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WEBHOOK_SECONDS", 0.0),
        ("WEBHOOK_SECONDS", 31.0),
        ("WEBHOOK_BACKOFF_SECONDS", 0.0),
        ("WEBHOOK_BACKOFF_SECONDS", 4_000.0),
        ("WEBHOOK_TERM_SECONDS", 60.0),
    ],
)
def test_periods_out_of_order_are_an_error(settings: Settings, name: str, value: float) -> None:
    setattr(settings, name, value)
    assert [found.id for found in checks.webhooks()] == ["config.E004"]


@pytest.mark.parametrize(
    ("name", "value", "warning"),
    [("WEBHOOK_HTTP", True, "config.W002"), ("WEBHOOK_NETWORKS", ["10.0.0.0/8"], "config.W003")],
)
def test_what_is_for_development_is_warned_of(
    settings: Settings, name: str, value: object, warning: str
) -> None:
    setattr(settings, name, value)
    assert [found.id for found in checks.webhooks_of_development()] == [warning]

"""Fixtures of the simulation: a database of its own."""

import os
from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from recovery.simulation import database


@pytest.fixture(scope="module")
def simulated(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """For a module's tests, the connection leads to a database of the simulation's own."""
    with (
        django_db_blocker.unblock(),
        database.simulated(f"test_simulation_{os.getpid()}"),
    ):
        yield

"""One stack of real processes for each module. It works on the test database, so that no other module's test may run
beside it: a module's tests run one after the other, and the stack is gone before the next module begins.
"""

import os
import re
from collections.abc import Iterator

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests import conftest
from tests.acceptance.live import Live

# The broker's databases 15, 14, ... belong to these tests: one for each process of a parallel run.
BROKER_NUMBER_MAX = 15


@pytest.fixture(scope="module")
def live(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Live]:
    """A stack of which nothing runs yet."""
    number = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
    with django_db_blocker.unblock():
        conftest.empty()
        with Live(tmp_path_factory.mktemp("stack"), BROKER_NUMBER_MAX - number) as stack:
            yield stack
        conftest.empty()
        connections.close_all()

"""Fixtures of every test: a real PostgreSQL, its roles, and a clean ledger after each test.

The journal refuses UPDATE, DELETE and TRUNCATE for all; tests empty it under `session_replication_role = replica`, which
only a superuser may set. `database` is transactional on purpose: under a wrapping transaction nothing commits, `durable`
passes unseen and on_commit never runs.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")  # noqa: S108  the embedded server's package warns without it
os.environ.setdefault("LOG_LEVEL", "WARNING")

import pytest
from django.conf import settings as django_settings
from django.db import connection, connections
from django.test.utils import setup_databases, teardown_databases
from pytest_django import DjangoDbBlocker

import config.celery  # noqa: F401  the current app, for rings

EMPTY = """
SET session_replication_role = replica;
DO $$
DECLARE t text;
BEGIN
    FOR t IN SELECT format('%I', tablename) FROM pg_tables WHERE schemaname = 'public'
        AND tablename NOT IN ('django_migrations', 'django_content_type', 'auth_permission', 'ledger_laneclock')
    LOOP
        EXECUTE 'DELETE FROM ' || t;
    END LOOP;
END $$;
UPDATE ledger_laneclock SET clock = 0;
SET session_replication_role = origin;
"""

Roles = Callable[[str], AbstractContextManager[None]]


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None,
    django_db_blocker: DjangoDbBlocker,
    django_db_modify_db_settings: None,
) -> Iterator[None]:
    """One test database for the session. pytest-django's own makes it only for tests with its marker, whose teardown is a
    TRUNCATE, which the journal refuses.
    """
    with django_db_blocker.unblock():
        config = setup_databases(verbosity=0, interactive=False, serialized_aliases=[])
    yield
    with django_db_blocker.unblock():
        connections.close_all()
        teardown_databases(config, verbosity=0)


@pytest.fixture
def database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A committed, empty database, used as its owner."""
    with django_db_blocker.unblock():
        empty()  # a run that was killed may have left rows
        yield
        empty()
        connections.close_all()


@pytest.fixture
def as_role(database: None) -> Roles:
    """The context manager `role`, for tests that use several: connections within drop to it, as its processes do."""
    return role


@pytest.fixture
def worker_role(as_role: Roles) -> Iterator[None]:
    """The whole test runs with the worker's privileges."""
    with as_role("worker"):
        yield


@contextmanager
def role(name: str) -> Iterator[None]:
    options = connection.settings_dict["OPTIONS"]
    before = options["options"]
    connection.close()
    options["options"] = f"{before} -c role={django_settings.ROLES[name]}"
    try:
        yield
    finally:
        connection.close()
        options["options"] = before


def empty() -> None:
    """Delete every row of every table of a test database, and of no other."""
    assert connection.settings_dict["NAME"].startswith("test_"), "this is not a test database"
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute(EMPTY)

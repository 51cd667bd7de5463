"""A database of the simulation's own: made, migrated and dropped here. It never touches anybody else's rows.

`ledger_now()` is replaced by virtual time, and `uuidv7()` by one that gives the same ids to the same seed (backoff is drawn
from ids). Jobs cost slightly different amounts, so that no two ranks are equal and no order is left to chance. The user
of DATABASE_URL must be allowed to create a database and to set `session_replication_role`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.management import call_command
from django.db import connection

from ledger import sql
from recovery.simulation import virtual

OPTIONS = (
    " -c search_path=sim,public,pg_catalog -c synchronous_commit=off -c role=amends_worker"
    f" -c sim.seed=0 -c sim.now={virtual.EPOCH:%Y-%m-%dT%H:%M:%SZ}"
)
OPENED = " -c search_path=public,pg_catalog -c synchronous_commit=off -c role=none"

INSTALL = """
CREATE OR REPLACE FUNCTION ledger_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT current_setting('sim.now')::timestamptz $$;
CREATE SCHEMA sim;
CREATE SEQUENCE sim.numbers;
CREATE FUNCTION sim.uuidv7() RETURNS uuid LANGUAGE sql VOLATILE
AS $$ SELECT md5(current_setting('sim.seed') || ':' || nextval('sim.numbers'))::uuid $$;
CREATE FUNCTION sim.next_cost() RETURNS double precision LANGUAGE sql VOLATILE
AS $$ SELECT 1 + (nextval('sim.numbers') % 1000) * 0.000137 $$;
ALTER TABLE ledger_job ALTER COLUMN cost SET DEFAULT sim.next_cost();
CREATE TABLE sim.item (name text PRIMARY KEY);
CREATE TABLE sim.hold (operation_id text PRIMARY KEY, item text NOT NULL, state text NOT NULL, version int NOT NULL,
    held_until timestamptz NOT NULL);
CREATE UNIQUE INDEX hold_one_at_a_time ON sim.hold (item) WHERE state IN ('held', 'secured');
GRANT USAGE ON SCHEMA sim TO amends_worker, amends_api, amends_retention;
GRANT ALL ON ALL TABLES IN SCHEMA sim TO amends_worker;
GRANT ALL ON ALL SEQUENCES IN SCHEMA sim TO amends_worker, amends_api;
"""

TABLES = (
    *(
        "ledger_submission",
        "ledger_attempt",
        "ledger_receipt",
        "ledger_sighting",
        "ledger_checkpoint",
    ),
    *("ledger_resolution", "ledger_job", "ledger_share", "ledger_tenant", "sim.hold", "sim.item"),
    *("ledger_permit", "ledger_provider", "ledger_sweep", "ledger_knownversion"),
)
EMPTY = f"""
SET ROLE none;
SET session_replication_role = replica;
{"; ".join(f"DELETE FROM {table}" for table in TABLES)};
UPDATE ledger_laneclock SET clock = 0 WHERE clock <> 0;
SET session_replication_role = origin;
SELECT setval('sim.numbers', 1);
SET ROLE amends_worker;
SET sim.seed = '{{seed}}';
"""  # noqa: S608  names of this module


@contextmanager
def simulated(name: str) -> Iterator[None]:
    """Within the block, the connection leads to a fresh database of this name, as the worker's role."""
    assert "simulation" in name, "only a database of the simulation's own is dropped"
    before = dict(connection.settings_dict)
    options = dict(before["OPTIONS"])
    _switch(before["NAME"], options | {"options": options.get("options", "") + OPENED})
    _execute(f'DROP DATABASE IF EXISTS "{name}"', f'CREATE DATABASE "{name}" TEMPLATE template0')
    try:
        _switch(name, options | {"options": options.get("options", "") + OPENED})
        call_command("migrate", verbosity=0)
        _execute(INSTALL)
        _switch(name, options | {"options": options.get("options", "") + OPTIONS})
        yield
    finally:
        _switch(before["NAME"], options | {"options": options.get("options", "") + OPENED})
        _execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        _switch(before["NAME"], options)


def empty(seed: int) -> None:
    """Forget the last history."""
    assert "simulation" in connection.settings_dict["NAME"], "this is somebody's database"
    _execute(EMPTY.format(seed=seed))


@contextmanager
def acting_as(role: str) -> Iterator[None]:
    """Within the block, with the privileges of another role than the worker's; within that, the worker's again."""
    before = sql.fetch("SELECT current_user")[0][0]
    sql.fetch(f"SET ROLE {settings.ROLES[role] or 'none'}")
    try:
        yield
    finally:
        sql.fetch(f"SET ROLE {before}")


def _switch(name: str, options: dict[str, object]) -> None:
    connection.close()
    connection.settings_dict["NAME"] = name
    connection.settings_dict["OPTIONS"] = options


def _execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)

"""Whose rows a session sees: the second wall, behind the tenant filters in the code. Kept by PostgreSQL itself.

The promise: the API's role sees and writes the rows of the tenant that it names, and of nobody where it names none; a view
that forgets its filter shows no foreign row. What looks after all tenants (staff, metrics) says so, with `everyone`.

The name goes with every statement, in the same message: no round trip more, nothing that a connection could keep for the
next request (also behind a pooler of transactions), and nothing to repeat after a reconnect. `SET LOCAL` and not
`set_config`: it takes no snapshot, so that a transaction can still choose its isolation. The other roles are not bound:
they work for all tenants at once.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db import connection

EVERYONE = "everyone"
SEES = "current_setting('amends.sees', true)"
# Each in a sub-select, so that it is read once a statement and not once a row. A setting that was local once is '' later.
OF_TENANT = f"""
    (SELECT {SEES}) = '{EVERYONE}' OR tenant_id = (SELECT nullif(nullif({SEES}, ''), '{EVERYONE}')::uuid)"""
# A scalar sub-select is asked row by row, by the primary key; an EXISTS could be turned into a read of all jobs. What that
# row shows is its own policy's to say.
OF_JOB = "(SELECT true FROM ledger_job j WHERE j.id = job_id)"
TABLES = {
    "ledger_job": OF_TENANT,
    "ledger_submission": OF_TENANT,
    **dict.fromkeys(
        [
            f"ledger_{name}"
            for name in ("attempt", "receipt", "sighting", "checkpoint", "resolution")
        ],
        OF_JOB,
    ),
}
WALL = """
CREATE POLICY {table}_seen ON {table} TO amends_api USING ({condition});
CREATE POLICY {table}_all ON {table} TO amends_worker, amends_retention USING (true);
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
"""
NO_WALL = """
ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;
DROP POLICY {table}_seen ON {table};
DROP POLICY {table}_all ON {table};
"""
# They end or undo a savepoint, in a transaction that may be able to do nothing else.
BARE = ("SAVEPOINT ", "RELEASE SAVEPOINT ", "ROLLBACK TO SAVEPOINT ")


class _Sight:
    """Puts the name before each statement of this connection; of several, the innermost speaks."""

    def __init__(self, sees: str) -> None:
        self._prefix = f"SET LOCAL amends.sees = '{sees}'; "

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any  # noqa: FBT001  Django's
    ) -> Any:  # fmt: skip
        own = [one for one in connection.execute_wrappers if isinstance(one, _Sight)]
        if own[-1] is not self or sql.startswith(BARE):
            return execute(sql, params, many, context)
        assert not many, "one statement, one message"
        found = execute(self._prefix + sql, params, many, context)
        context["cursor"].nextset()  # past the answer to the prefix
        return found


@contextmanager
def of(tenant_id: UUID) -> Iterator[None]:
    """In the block, this connection's statements see one tenant's rows."""
    with connection.execute_wrapper(_Sight(str(UUID(str(tenant_id))))):
        yield


@contextmanager
def everyone() -> Iterator[None]:
    """In the block, they see all rows: for who was let in as staff, and for figures that name no tenant."""
    with connection.execute_wrapper(_Sight(EVERYONE)):
        yield

"""What happened to the jobs of tenants who asked to be told: an append-only event for each end and each park.

The promise: no event is lost and none is early. A trigger writes it in the commit that moves the job (`ledger.guards`), and
whoever takes it to tell it does so in a transaction together with what it makes of it; what that rolls back is pending
again. Tenants that announce nothing pay one look at their own row for each job that ends.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from ledger import sql
from ledger.saga import Direction

ANNOUNCE = "UPDATE ledger_tenant SET announces = true WHERE id = %s"
# In the order of their ids, which is nearly that in which they happened.
TAKE = """
WITH next AS (
    SELECT id FROM ledger_event WHERE pending ORDER BY id LIMIT %s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE ledger_event e SET pending = false FROM next n WHERE e.id = n.id
RETURNING e.id, e.job_id, e.tenant_id, e.state, e.direction, e.seq, e.at
"""


@dataclass(frozen=True, slots=True)
class Event:
    """`state` and `direction` are the job's right after the move, `seq` its version then."""

    id: UUID
    job_id: UUID
    tenant_id: UUID
    state: str
    direction: Direction
    seq: int
    at: datetime


def announce(tenant_id: UUID) -> None:
    """From now on, this tenant's jobs leave events. Locks the tenant's row until the caller's commit."""
    assert connection.in_atomic_block, "together with what the events are for"
    sql.fetch(ANNOUNCE, [tenant_id])


def take(limit: int) -> list[Event]:
    """At most so many events that nobody has taken yet; the caller's commit makes them taken."""
    assert connection.in_atomic_block, "what is made of an event commits with it"
    found = [
        Event(id_, job, tenant, state, Direction(direction), seq, at)
        for id_, job, tenant, state, direction, seq, at in sql.fetch(TAKE, [limit])
    ]
    return sorted(found, key=lambda event: event.id)

"""A database that came back without its newest commits: whoever goes on from memory is no owner of what is older there."""

from uuid import UUID

import pytest

from ledger import journal, leases, models
from tests import claims, psql, sagas
from tests.ledger.test_stale_writes import KINDS

pytestmark = pytest.mark.usefixtures("worker_role")
UNCLAIMED = """
UPDATE ledger_job SET state = 'queued', fence = fence - 1, owner = NULL, claim_token = NULL, lease_until = NULL WHERE id = %s
"""
WITHOUT_ITS_ATTEMPT = "UPDATE ledger_job SET seq = seq - 1 WHERE id = %s"


def rewind(statement: str, job_id: UUID) -> None:
    """The row as it was some commits ago; no guard sees it, as none sees a failover."""
    with psql.connected(autocommit=False) as owner:
        owner.execute("SET LOCAL session_replication_role = replica")
        owner.execute(statement, [job_id])
        owner.execute("DELETE FROM ledger_attempt WHERE job_id = %s", [job_id])
        owner.commit()


@pytest.fixture
def twice() -> tuple[leases.Claimed, leases.Claimed]:
    """A claim is lost, and its fence given out again."""
    with sagas.trip(sagas.World()) as trip:
        old = claims.running(trip)
        rewind(UNCLAIMED, old.id)
        (new,) = claims.claim(trip)
    assert (new.id, new.fence, new.seq) == (old.id, old.fence, old.seq)
    return old, new


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_that_were_given_one_fence_the_later_owns_the_job(
    twice: tuple[leases.Claimed, leases.Claimed], kind: str
) -> None:
    old, new = twice
    before = claims.snapshot(old.id)
    assert claims.settle(claims.write(old, **KINDS[kind])) == ["stale"]
    assert claims.snapshot(old.id) == before
    assert claims.settle(claims.write(new, **KINDS[kind])) == ["applied"]


def test_the_earlier_keeps_no_lease_alive(twice: tuple[leases.Claimed, leases.Claimed]) -> None:
    old, new = twice
    before = claims.snapshot(old.id)
    assert leases.renew([old.lease]) == {}
    assert claims.snapshot(old.id) == before
    assert set(leases.renew([new.lease])) == {new.id}


def test_who_has_stored_more_than_is_there_is_not_its_owner_any_more() -> None:
    """Or it would keep the job, which it cannot write, until its run ends."""
    with sagas.trip(sagas.World()) as trip:
        job = claims.running(trip)
    written = journal.settle([claims.write(job, attempts=[claims.attempt()])])[job.id]
    knows = job.lease._replace(seq=written.seq)
    assert set(leases.renew([knows, job.lease])) == {job.id}
    rewind(WITHOUT_ITS_ATTEMPT, job.id)
    before = claims.snapshot(job.id)
    assert leases.renew([knows]) == {}
    assert claims.settle(claims.write(job, seq=written.seq, receipts=[claims.receipt()])) == [
        "stale"
    ]
    assert claims.snapshot(job.id) == before
    assert not models.Receipt.objects.filter(job_id=job.id).exists()

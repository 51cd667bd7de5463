"""A LOCAL batch whose COMMIT went through while its reply was lost: found by its write id, never run a second time."""

import pytest
from django.db import OperationalError, connection, transaction

from ledger import crashpoints, models, saga
from tests import drives, factories, sagas

pytestmark = pytest.mark.usefixtures("worker_role")


def test_a_batch_that_was_committed_unseen_is_taken_over_and_not_repeated() -> None:
    world = sagas.World()
    with sagas.trip(world, effect=saga.LOCAL, undo_effect=saga.LOCAL) as trip:
        jobs = [factories.submit(trip) for _ in range(3)]
        lost: list[str] = []

        def lose_once(point: str) -> None:
            if not lost:
                lost.append(point)
                connection.close()
                raise OperationalError("the reply to the commit was lost")

        with crashpoints.armed("local.after", lose_once):
            drives.drive_all()
    assert lost == ["local.after"]
    assert [drives.state(job) for job in jobs] == ["confirmed"] * 3
    assert world.times("room:forward") == 3
    assert models.Attempt.objects.count() == 9
    assert models.Job.objects.filter(leases_lost__gt=0).count() == 0


def test_a_batch_that_was_rolled_back_is_run_again() -> None:
    """Control: the same loss before the commit."""
    world = sagas.World()
    with sagas.trip(world, effect=saga.LOCAL, undo_effect=saga.LOCAL) as trip:
        job = factories.submit(trip)
        lost: list[str] = []

        def lose_once(point: str) -> None:
            if not lost:
                lost.append(point)
                assert transaction.get_connection().in_atomic_block
                raise OperationalError("the connection is gone")

        with crashpoints.armed("local.after_handlers", lose_once):
            drives.drive_all()
    assert drives.state(job) == "confirmed"
    assert world.times("room:forward") == 2
    assert models.Attempt.objects.filter(job_id=job).count() == 3

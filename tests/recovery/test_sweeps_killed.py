"""A sweep that is killed with -9 while it has its lock, or waits for it, leaves no lock behind: the next pass does its work.

A real process. Its session on the server may be in a statement that waits: it notices the death only after that, so that
what bounds it is the limit of that wait.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger import crashpoints, models, saga, shares
from recovery import sweeps
from tests import claims, drives, factories, psql, sagas
from tests.acceptance import addresses

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.timeout(60)]
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import django
django.setup()
import config.celery
from recovery import sweeps
sweeps.{name}()
"""
LOCKS = """
SELECT count(*) {} 0 FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND pid <> %s
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
Session = psycopg.Connection[Any]


@pytest.fixture
def trip() -> Iterator[saga.Saga]:
    with sagas.trip(sagas.World()) as definition:
        yield definition


@contextmanager
def sweeping(name: str, **armed: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs this sweep once, and is dead at the end."""
    env = {**os.environ, "DATABASE_URL": addresses.database_url(), "AMENDS_ROLE": "worker", **armed}
    env |= {"PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "config.settings"}
    command = [sys.executable, "-c", PROGRAM.format(name=name)]
    with subprocess.Popen(command, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def await_lock(watch: Session, of: int) -> None:
    psql.await_true(watch, LOCKS.format(">"), [of, 0])


def await_no_lock(watch: Session, of: int, but: int = 0) -> None:
    """Nobody has it or waits for it, but for that session."""
    psql.await_true(watch, LOCKS.format("="), [of, but])


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    assert process.wait(10) == -signal.SIGKILL, "it was at work"


def test_a_reclaim_that_is_killed_with_its_lock(trip: saga.Saga) -> None:
    job = claims.running(trip)
    drives.expire_lease(job.id)
    stopped = {crashpoints.ARM_VARIABLE: "reclaim.before=pause"}
    with psql.connected() as watch, sweeping("reclaim", **stopped) as process:
        await_lock(watch, sweeps.ADVISORY_CLASS)
        assert sweeps.reclaim().skipped
        kill(process)
        await_no_lock(watch, sweeps.ADVISORY_CLASS)
    assert sweeps.reclaim().count == 1
    found = models.Job.objects.get(id=job.id)
    assert (found.state, found.fence, found.leases_lost) == ("queued", 2, 1)


def busy_tenant(other: Session) -> None:
    """It has the lock, and waits for its tenant's row."""
    other.execute("SELECT 1 FROM ledger_share FOR UPDATE")


def busy_lane(other: Session) -> None:
    """It waits for the lock."""
    key = [shares.ADVISORY_CLASS, "forward"]
    other.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", key)


@pytest.mark.parametrize("keep_busy", [busy_tenant, busy_lane])
def test_a_promotion_that_is_killed_while_it_waits(
    trip: saga.Saga, keep_busy: Callable[[Session], None]
) -> None:
    tenant = factories.TenantFactory.create()
    factories.submit(trip, tenant=tenant)
    assert sweeps.promote().count == 1  # so that its tenant has a row to wait for
    job = factories.submit(trip, tenant=tenant)
    with (
        psql.connected(autocommit=False) as other,
        psql.connected() as watch,
        sweeping("promote") as process,
    ):
        keep_busy(other)
        psql.await_lock_wait(watch)
        kill(process)
        await_no_lock(watch, shares.ADVISORY_CLASS, but=other.info.backend_pid)
        assert drives.state(job) == "waiting"
        other.rollback()
        assert sweeps.promote().count == 1
    assert drives.state(job) == "queued"

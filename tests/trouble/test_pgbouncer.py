"""The whole stack behind PgBouncer in transaction mode, two server connections for each role, also when it is restarted.

No state of a session is relied on: no prepared statement, no cursor that outlives its transaction, no session lock. Each
role logs in for itself, and its timeouts are settings of the role: PgBouncer hands no start-up options on.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connection

from config import programs
from tests import psql
from tests.acceptance import deaths
from tests.acceptance import live as acceptance
from tests.acceptance.live import CAPTURE, Live
from tests.trouble import clients, servers, wires

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]
PACKAGES = ("pgbouncer", "libc-ares2", "libevent-2.1-7")
LOGINS = {"API": "amends_api", "WORKER": "amends_worker", "RETENTION": "amends_retention"}
NAMES = (programs.API, programs.WORKER, programs.SWEEPS, programs.BEAT)
POOL = 2
SECONDS = 45.0
OPEN = "SELECT usename, count(*) FROM pg_stat_activity WHERE usename LIKE 'amends_%' GROUP BY 1"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program out of its Debian package, which is not installed for that."""
    directory = tmp_path_factory.mktemp("pgbouncer")
    done = (
        subprocess.run(
            ["apt-get", "download", *PACKAGES],
            check=False,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=90,
        )
        if shutil.which("apt-get")
        else None
    )
    if done is None or done.returncode:
        assert not os.environ.get("CI"), "PgBouncer's package cannot be had"
        pytest.skip("PgBouncer's package cannot be had")
    for package in directory.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, directory], check=True, timeout=30)
    return directory


@pytest.fixture(scope="module")
def logins(live: Live) -> Iterator[None]:
    """Each role logs in for itself; what the processes ask for at start-up is a setting of the role."""
    limits = {
        "statement_timeout": settings.STATEMENT_SECONDS,
        "lock_timeout": settings.LOCK_SECONDS,
    }
    with psql.connected() as owner:
        for role in LOGINS.values():
            owner.execute(f"ALTER ROLE {role} LOGIN")
            for name, seconds in limits.items():
                owner.execute(f"ALTER ROLE {role} SET {name} = {int(seconds * 1000)}")
    yield
    with psql.connected() as owner:
        for role in LOGINS.values():
            owner.execute(f"ALTER ROLE {role} NOLOGIN")
            owner.execute(f"ALTER ROLE {role} RESET ALL")


@dataclass
class Stack:
    live: Live
    bouncer: servers.PgBouncer
    env: dict[str, str]


@pytest.fixture(scope="module")
def stack(live: Live, package: Path, logins: None) -> Iterator[Stack]:
    target = wires.database()
    host = str(Path(target).parent) if isinstance(target, str) else target[0]
    name = str(connection.settings_dict["NAME"])
    with servers.PgBouncer(package, host, name, list(LOGINS.values())) as bouncer:
        env = {f"{role}_DATABASE_URL": bouncer.url(login) for role, login in LOGINS.items()}
        live.start(programs.SANDBOX)
        live.start(*NAMES, env=env)
        yield Stack(live, bouncer, env)
        for process in NAMES:
            live.end(process)


def assert_each_once(live: Live, booked: list[UUID]) -> None:
    live.assert_each_once(booked, SECONDS)
    with psql.connected() as watch:
        assert watch.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        ).fetchone() == (0,)


def test_every_hot_statement_runs_often_over_two_connections(stack: Stack) -> None:
    agent, most = stack.live.agent(), dict[str, int]()
    booked = []
    with psql.connected() as watch:
        for _ in range(25):
            booked.append(agent.book())
            for role, count in watch.execute(OPEN).fetchall():
                most[role] = max(most.get(role, 0), count)
        assert_each_once(stack.live, booked)
        limit = watch.execute(
            "SELECT DISTINCT usename FROM pg_stat_activity WHERE usename LIKE 'amends_%'"
        )
        assert {"amends_api", "amends_worker"} <= {row[0] for row in limit.fetchall()}
    assert set(most.values()) <= {1, POOL}


def test_it_is_killed_and_started_again_under_load(stack: Stack) -> None:
    client = clients.Client(stack.live.agent())
    stack.live.control("latency", mean_seconds=0.1)
    for _ in range(2):
        for _ in range(6):
            client.book()
        stack.bouncer.kill()
        assert client.book() is False
        stack.bouncer.start()
    booked = client.insist()
    assert len(booked) == 14
    stack.live.be_honest()
    assert_each_once(stack.live, booked)


def test_a_holder_of_leases_is_killed(stack: Stack) -> None:
    """Whatever it held was a row's or a transaction's, which end with it or with its lease."""
    live, agent = stack.live, stack.live.agent()
    live.rule("delay", match="capture", times=6, seconds=0.8)
    booked = agent.book_many(6)
    acceptance.until(lambda: acceptance.in_flight(booked, CAPTURE) > 0, SECONDS)
    deaths.signal_all(live.pool(), signal.SIGKILL)
    live.be_honest()
    assert_each_once(live, booked)

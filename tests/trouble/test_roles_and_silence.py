"""A process that is not in its role is told so, and a database that falls silent is noticed within the lease."""

import socket
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import connection
from pytest_django.fixtures import Settings

from ledger import checks
from recovery import proxy
from tests import conftest, psql
from tests.trouble import wires

pytestmark = pytest.mark.usefixtures("database")


def found() -> list[str]:
    return [str(message.id) for message in checks.server(databases=["default"])]


@pytest.mark.parametrize("role", ["api", "worker", "retention"])
def test_the_login_of_the_tables_owner_is_refused_where_a_role_is_given(
    settings: Settings, role: str
) -> None:
    settings.ROLE = role
    (error,) = checks.server(databases=["default"])
    assert error.id == "ledger.E032"
    assert f"{role.upper()}_DATABASE_URL" in error.msg
    assert "owner" in error.msg
    with conftest.role(role):
        assert found() == []


def test_another_role_is_refused_too_and_the_owner_is_the_owner(settings: Settings) -> None:
    settings.ROLE = "api"
    with conftest.role("worker"):
        assert found() == ["ledger.E032"]
    settings.ROLE = "owner"
    assert found() == []


@pytest.fixture
def between() -> Iterator[proxy.Proxy]:
    with proxy.Proxy(wires.database()) as found_:
        yield found_


def test_the_kernel_is_told_when_to_give_a_silent_database_up(between: proxy.Proxy) -> None:
    """A proxy of ours cannot be silent to the kernel, which acknowledges for it: so the socket is asked."""
    with wires.through(between):
        psql.pid()
        with socket.socket(fileno=socket.dup(connection.connection.pgconn.socket)) as ours:
            limit = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000
            idle, pause, count = (
                ours.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
    assert 0 < limit <= settings.LEASE_SECONDS / 2
    assert idle + pause * count <= settings.LEASE_SECONDS / 2

"""The broker's one account, as the compose file makes it: enough for all that the service does, and for nothing else."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, override

import pytest
import redis
import yaml

from config import checks, programs
from recovery import proxy
from tests.acceptance.live import Live, until
from tests.trouble import servers

pytestmark = pytest.mark.timeout(120)
COMPOSE = Path(__file__).resolve().parents[2] / "compose.yaml"
PASSWORD = "8cb1ee5f"  # noqa: S105  of this test's server
SECONDS = 45.0
NAMES = (programs.API, programs.WORKER, programs.SWEEPS, programs.BEAT)
COUNTS = "amends:rate:*"


class Locked(servers.Valkey):
    """With the accounts of the compose file, and their password filled in."""

    @override
    def command(self) -> Sequence[str]:
        given = yaml.safe_load(COMPOSE.read_text())["services"]["valkey"]["command"]
        asked = "${VALKEY_PASSWORD:?set it in .env}"
        accounts = [part.replace(asked, PASSWORD) for part in given[given.index("--user") :]]
        return [*super().command(), *accounts]

    @override
    def client(self, **account: Any) -> redis.Redis:
        account = account or {"password": PASSWORD}
        return redis.Redis(unix_socket_path=self.socket, socket_timeout=10, **account)


@pytest.fixture(scope="module")
def locked() -> Iterator[Locked]:
    with Locked() as server:
        yield server


def test_bookings_are_made_under_it_and_rates_are_counted_for_all(
    locked: Locked, live: Live
) -> None:
    with proxy.Proxy(locked.socket) as between:
        address = f"redis://:{PASSWORD}@{proxy.HOST}:{between.port}/0"
        live.start(programs.SANDBOX)
        live.start(*NAMES, env={"BROKER_URL": address})
        bookings = live.agent().book_many(5)
        live.ended(bookings, "confirmed", SECONDS)
        live.assert_books_agree(bookings)
        with locked.client() as client:
            assert list(client.scan_iter(COUNTS)), "no process counts for itself"
            until(
                lambda: not client.hlen("unacked"), SECONDS, lambda: "a ticket is not acknowledged"
            )
        for name in NAMES:
            live.end(name)
        assert "NOPERM" not in logs(live)


def logs(live: Live) -> str:
    return "".join(log.read_text() for log in live.stack.workdir.glob("*.log"))


@pytest.mark.parametrize(
    "account",
    [{"password": "guessed"}, {"username": "default"}, {"username": "root", "password": PASSWORD}],
    ids=["wrong password", "no password", "another name"],
)
def test_nobody_else_is_heard(locked: Locked, account: dict[str, str]) -> None:
    with locked.client(**account) as client, pytest.raises(redis.AuthenticationError):
        client.lpush("forward", "forged")
    with locked.client() as client:
        assert client.llen("forward") == 0


@pytest.mark.parametrize(
    "command",
    ["FLUSHALL", "FLUSHDB", "CONFIG SET maxmemory-policy allkeys-lru", "KEYS *", "SHUTDOWN NOSAVE",
     "ACL LIST", "REPLICAOF 10.0.0.1 6379", "CLIENT KILL TYPE normal", "MONITOR", "MODULE LIST"],
)  # fmt: skip
def test_it_can_neither_empty_nor_change_nor_overhear_the_broker(
    locked: Locked, command: str
) -> None:
    with locked.client() as client:
        client.set("kept", "1")
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command.split())
        assert client.get("kept") == b"1"
        client.delete("kept")


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("redis://broker:6379/0", ["config.W004"]),
        ("rediss://:@broker:6379/0", ["config.W004"]),
        (f"redis://:{PASSWORD}@broker:6379/0", []),
        ("redis+socket:///run/valkey.sock?virtual_host=0", []),
    ],
)
def test_an_address_without_a_password_is_warned_of_before_a_deployment(
    settings: Any, url: str, warned: list[str]
) -> None:
    settings.BROKER_URL = url
    assert [found.id for found in checks.broker_account()] == warned

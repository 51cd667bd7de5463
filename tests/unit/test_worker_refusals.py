"""What a worker refuses before it takes a ticket: pools that share a connection, limits that end a run inside a commit."""

import subprocess
import sys
from typing import Any

import pytest
from django.conf import settings

from config import checks, worker
from config.celery import app

START = [sys.executable, "-m", "celery", "-A", "config.celery", "-q", "worker", "-Q", "forward"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-P", "threads"], "the pool 'thread' is not supported, only prefork and solo"),
        (["--soft-time-limit", "5"], "--soft-time-limit: its exception can land inside a COMMIT"),
        (["--time-limit", "3"], "--time-limit 3: under TASK_TIME_LIMIT_SECONDS"),
        (["--time-limit", "300"], "--time-limit 300: not under VISIBILITY_TIMEOUT_SECONDS"),
        (["--pool-start-method", "spawn"], "--pool-start-method: only fork"),
    ],
)
def test_a_real_worker_ends_at_once_and_says_why(options: list[str], says: str) -> None:
    ended = subprocess.run(
        [*START, *options], check=False, capture_output=True, text=True, timeout=25
    )
    assert ended.returncode == 1
    assert says in ended.stderr
    assert "worker.ready" not in ended.stderr


@pytest.mark.parametrize("pool", ["gevent", "eventlet", "celery.concurrency.gevent"])
def test_greenlets_are_refused_by_name_where_they_cannot_be_installed(pool: str) -> None:
    with pytest.raises(SystemExit, match="is not supported"):
        worker._refuse_unsafe({"pool": pool})


@pytest.mark.parametrize("options", [{}, {"pool": "prefork"}, {"pool": "solo", "time_limit": 200}])
def test_what_is_supported_passes(options: dict[str, Any]) -> None:
    worker._refuse_unsafe(options)


def test_a_pool_in_the_settings_is_refused_by_the_check() -> None:
    assert checks.pools() == []
    before = app.conf.worker_pool
    app.conf.worker_pool = "threads"
    try:
        assert [error.id for error in checks.pools()] == ["config.E002"]
    finally:
        app.conf.worker_pool = before


@pytest.mark.parametrize(
    ("limit", "why"),
    [(119.0, "under TASK_TIME_LIMIT_SECONDS"), (300.0, "not under VISIBILITY_TIMEOUT_SECONDS")],
)
def test_a_task_with_a_hard_limit_that_is_out_of_order_is_refused_by_the_check(
    monkeypatch: pytest.MonkeyPatch, limit: float, why: str
) -> None:
    """What the transport was told is what the order is held for."""
    assert checks.hard_time_limits() == []
    monkeypatch.setattr(app.tasks["recovery.retain"], "time_limit", limit)
    [found] = checks.hard_time_limits()
    assert (found.id, why in found.msg) == ("config.E007", True)
    assert found.msg.startswith("recovery.retain ")
    told = app.conf.broker_transport_options["visibility_timeout"]
    assert told == settings.VISIBILITY_TIMEOUT_SECONDS

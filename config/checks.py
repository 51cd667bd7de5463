"""What `manage.py check` refuses of the Celery app and of its servers. Keeps one promise: no exception is thrown into the
middle of a write, and no connection is shared by two processes. With `--database default` it asks the broker, too.
"""

import re
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags
from django.core.checks import Warning as CheckWarning
from django.core.checks import register as register_check

from config import worker

TEXT = "has a soft time limit: its exception can land inside a COMMIT, or in a call whose effect is on its way"


def register() -> None:
    register_check(soft_time_limits, "amends")
    register_check(hard_time_limits, "amends")
    register_check(pools, "amends")
    register_check(shared_connections, "amends")
    register_check(bench_route, "amends")
    register_check(limits, "amends")
    register_check(broker_account, "amends", deploy=True)
    register_check(evictions, Tags.database)
    register_check(webhooks, "amends")
    register_check(webhooks_of_development, "amends", deploy=True)


def soft_time_limits(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Neither for all tasks nor for one: a run ends by itself, and what hangs is ended by the hard limit."""
    app = _app()
    limited = [name for name, task in sorted(app.tasks.items()) if task.soft_time_limit]
    if app.conf.task_soft_time_limit:
        limited = ["every task"]
    return [Error(f"{name} {TEXT}", id="config.E001") for name in limited]


def hard_time_limits(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """A task may have one of its own, within the same bounds: its message must not come again while it is at work."""
    limits = {name: worker.against_limit(task.time_limit) for name, task in _app().tasks.items()}
    return [
        Error(f"{name} has a hard time limit of {against}", id="config.E007")
        for name, against in sorted(limits.items())
        if against
    ]


def _app() -> Any:
    """With its tasks, which are known only when the registry is ready."""
    from config.celery import app  # noqa: PLC0415

    app.loader.autodiscover_tasks([known.name for known in apps.get_app_configs()])
    return app


def pools(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Leases belong to a process, and so does its one connection: no pool of threads or greenlets in one process."""
    from config.celery import app  # noqa: PLC0415

    pool = str(app.conf.worker_pool).rpartition(".")[2].partition(":")[0]
    if pool in worker.SUPPORTED_POOLS:
        return []
    text = f"worker_pool is {pool!r}: only {' and '.join(worker.SUPPORTED_POOLS)} are supported"
    return [Error(text, id="config.E002")]


def shared_connections(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """A pool of connections that was opened before a fork serves nobody after it; PgBouncer pools for all processes."""
    if not settings.DATABASES["default"].get("OPTIONS", {}).get("pool"):
        return []
    text = "DATABASES has OPTIONS['pool']: each process keeps one connection; put PgBouncer in front for fewer"
    return [Error(text, id="config.E003")]


def bench_route(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """A benchmark sets it for the server that it starts itself, and for no other process."""
    from config import bench_views  # noqa: PLC0415  it imports models

    if not bench_views.is_routed():
        return []
    text = f"{bench_views.VARIABLE} is set: it routes a view that keeps no promise"
    return [Error(text, id="config.E005")]


def limits(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """A rate that lets somebody in, and an address to count at that we can read."""
    s = settings
    rules = [
        (s.RATE_PER_MINUTE >= 1 and s.WRONG_KEYS_PER_MINUTE >= 1, "a rate is 1 or more"),
        (s.OPEN_JOBS_MAX >= 0 and s.BACKLOG_SECONDS_MAX >= 0, "what is refused is 0 or more"),
        (s.TRUSTED_PROXIES >= 0, "TRUSTED_PROXIES is 0 or more"),
        (
            re.fullmatch(r"([a-z0-9]{1,16})?", s.KEY_ENVIRONMENT),
            "KEY_ENVIRONMENT is of at most 16 characters a-z, 0-9",
        ),
        (
            s.RATE_URL.startswith(("redis://", "rediss://", "unix://", "redis+socket://")),
            "RATE_URL is one server: set it where the broker's address is not",
        ),
    ]
    text = "the limits of the API must make sense"
    return [Error(f"{text}: {rule}", id="config.E006") for holds, rule in rules if not holds]


def webhooks(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Waits in order, a term that they fit in, and a try that ends before the next sweep is overdue."""
    s = settings
    rules = [
        (0 < s.WEBHOOK_SECONDS <= 30, "0 < WEBHOOK_SECONDS <= 30"),
        (
            0
            < s.WEBHOOK_BACKOFF_SECONDS
            <= s.WEBHOOK_BACKOFF_SECONDS_MAX
            <= s.WEBHOOK_TERM_SECONDS,
            "0 < WEBHOOK_BACKOFF_SECONDS <= WEBHOOK_BACKOFF_SECONDS_MAX <= WEBHOOK_TERM_SECONDS",
        ),
    ]
    return [
        Error(f"the periods of webhooks must be in order: {rule}", id="config.E004")
        for holds, rule in rules
        if not holds
    ]


def webhooks_of_development(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """What lets a tenant reach our own machines, or read on the way what is signed for another."""
    found: list[CheckMessage] = []
    if settings.WEBHOOK_HTTP:
        text = "WEBHOOK_HTTP is on: webhooks go out without TLS"
        found.append(CheckWarning(text, id="config.W002"))
    if settings.WEBHOOK_NETWORKS:
        text = "WEBHOOK_NETWORKS lets tenants send requests to these networks"
        found.append(CheckWarning(text, id="config.W003"))
    return found


def broker_account(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Whoever reaches the broker can ring, and throw tickets away."""
    found = urlsplit(settings.BROKER_URL)
    if found.scheme not in ("redis", "rediss") or found.password:
        return []
    text = "BROKER_URL holds no password: whoever reaches the broker can write to it"
    return [CheckWarning(text, id="config.W004")]


def evictions(databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """A broker that throws keys away throws tickets away. The sweep rings again, so that it is slow and not wrong."""
    if not databases or "default" not in databases:
        return []
    from config.celery import app  # noqa: PLC0415

    broker: Any = app.connection_for_read(transport_options={"socket_timeout": 2})
    try:
        with broker:
            policy = broker.channel().client.info("memory")["maxmemory_policy"]
    except (OSError, *broker.connection_errors):
        return []  # a broker that is away is no mistake of the settings
    if policy == "noeviction":
        return []
    return [
        CheckWarning(f"the broker's maxmemory-policy is {policy}: use noeviction", id="config.W001")
    ]

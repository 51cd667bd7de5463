"""What `manage.py check` refuses of the Celery app. Keeps one promise: no exception is thrown into the middle of a write."""

from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.checks import register as register_check

TEXT = "has a soft time limit: its exception can land inside a COMMIT, or in a call whose effect is on its way"


def register() -> None:
    register_check(soft_time_limits, "amends")


def soft_time_limits(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Neither for all tasks nor for one: a run ends by itself, and what hangs is ended by the hard limit."""
    from config.celery import app  # noqa: PLC0415  whose tasks are known only when the registry is ready

    app.loader.autodiscover_tasks([known.name for known in apps.get_app_configs()])
    limited = [name for name, task in sorted(app.tasks.items()) if task.soft_time_limit]
    if app.conf.task_soft_time_limit:
        limited = ["every task"]
    return [Error(f"{name} {TEXT}", id="config.E001") for name in limited]

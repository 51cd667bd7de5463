"""The Celery app: lanes, a fixed beat schedule, and settings under which losing or doubling a message is harmless.

Nothing about progress lives here: no chains, results, ETA or retry. Messages are JSON and carry at most a lane.
The schedule is static: an operator must not be able to switch recovery off in a form.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
os.environ.setdefault("AMENDS_ROLE", "worker")

from celery import Celery
from django.conf import settings
from kombu import Queue

from config import worker
from ledger import tickets
from ledger.states import Lane

SWEEP_EXPIRES_SECONDS = 900
LANES = {"bookings.webhooks": Lane.WEBHOOKS}  # of sweeps that have their own

app = Celery("amends", set_as_current=True)
app.conf.update(
    broker_url=settings.BROKER_URL,
    broker_use_ssl=tickets.verified(settings.BROKER_URL),
    result_backend=None,
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    enable_utc=True,
    timezone="UTC",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_acks_on_failure=True,  # rows decide what comes next, not the message
    task_acks_on_timeout=True,
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=True,
    task_time_limit=settings.TASK_TIME_LIMIT_SECONDS,  # and no soft limit: its exception can land inside a COMMIT
    broker_transport_options={
        "visibility_timeout": settings.VISIBILITY_TIMEOUT_SECONDS,
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
    },
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    task_publish_retry_policy={"max_retries": 2, "interval_start": 0, "interval_max": 0.5},
    task_create_missing_queues=False,
    task_default_queue=Lane.FORWARD.value,
    task_queues=[Queue(lane.value) for lane in Lane],
    worker_send_task_events=True,
    task_send_sent_event=True,
    # A run replaces a broken connection itself; a new one for every ticket would cost each idle job some milliseconds.
    CELERY_DB_REUSE_MAX=500,
    beat_enable_remote_control=True,  # `celery inspect ping` tells a beat that ticks from one that hangs
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    beat_schedule={
        name: {
            "task": name,
            "schedule": period,
            # Bounds the backlog of an outage. Long, because a worker's own clock judges it: one that is ten minutes
            # fast must still sweep.
            "options": {
                "queue": LANES.get(name, Lane.SWEEPS).value,
                "expires": SWEEP_EXPIRES_SECONDS,
            },
        }
        for name, period in settings.SWEEPS.items()
    },
)
app.autodiscover_tasks(["ledger", "recovery", "bookings"])
worker.connect()

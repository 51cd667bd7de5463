"""gunicorn's own settings: threads, and its few log lines through the same JSON formatter as everybody's.

Used as `gunicorn config.wsgi --config python:config.gunicorn`; the command line adds where to listen and how many.
"""

from typing import Any

worker_class = "config.web_worker.Worker"
limit_request_line = 8190  # above the API's own limit, whose refusal is a problem document
forwarded_allow_ips = (
    ""  # what a proxy tells is read by Django, and only where TRUSTED_PROXIES names one
)
control_socket_disable = (
    True  # that socket is one per user: two stacks of one user would meet in it
)
logconfig_dict: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "root": {"level": "INFO", "handlers": ["json"]},
    "loggers": {
        "gunicorn.error": {"level": "INFO", "handlers": [], "propagate": True},
        "gunicorn.access": {"level": "INFO", "handlers": [], "propagate": True},
    },
    "handlers": {
        "json": {
            "class": "logging.StreamHandler",
            "formatter": "json",
            "stream": "ext://sys.stderr",
        }
    },
    "formatters": {"json": {"()": "config.logs.formatter"}},
}

"""JSON logs on standard error, with an allow-list: a field that is not named here is written as `[redacted]`.

An allow-list, because a deny-list forgets the next secret. Names are matched whole (a pattern such as `pan` would also
blank `span_id`). Standard-library records pass through the same processors.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

ALLOWED = frozenset(
    {
        "event",
        "level",
        "logger",
        "timestamp",
        "lane",
        "job",
        "jobs",
        "tenant",
        "saga",
        "version",
        "step",
        "direction",
        "outcome",
        "n",
        "fence",
        "seq",
        "state",
        "reason",
        "count",
        "seconds",
        "attempts",
        "owner",
        "pid",
        "sweep",
        "write",
        "sqlstate",
        "error",
        "error_class",
        "point",
        "released",
        "held",
        "lost",
        "bookings",
        "method",
        "path",
        "status",
        "request_id",
        "trace_id",
        "port",
        "address",
        "reclaimed",
        "promoted",
        "rung",
        "retained",
        "expired",
        "operation_id",
        "lateness_seconds",
        "exception",
    }
)
REDACTED = "[redacted]"


def redact(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> dict[str, Any]:
    return {name: value if name in ALLOWED else REDACTED for name, value in fields.items()}


def class_of_exception(
    _logger: Any, _method: str, fields: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Tracebacks stay, locals never; exc_info is rendered here so that its text is one allowed field."""
    exc_info = fields.pop("exc_info", None)
    if exc_info:
        fields["exception"] = structlog.processors.ExceptionRenderer()(
            _logger, _method, {"exc_info": exc_info}
        ).get("exception")
    return fields


SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,  # the request's id, on every line that it causes
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def formatter() -> logging.Formatter:
    """The one JSON formatter; gunicorn asks for it by name, before any settings are read."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=SHARED,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            class_of_exception,
            redact,
            structlog.processors.JSONRenderer(default=str),
        ],
    )


def configure(level: str) -> None:
    """Send structlog, the standard library and warnings through one JSON formatter to standard error."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)
    for noisy in ("httpx2", "httpcore2", "asyncio", "celery.redirected"):
        logging.getLogger(noisy).setLevel(logging.WARNING)

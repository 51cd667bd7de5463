"""Every setting of the project, read from the environment once. No `if DEBUG`, no second settings module.

Which database role a process uses is named by AMENDS_ROLE (owner, api, worker, retention): `config.wsgi` defaults to
api, `config.celery` to worker, `manage.py` to owner. Where only DATABASE_URL is given, the other roles log in with it
and drop to their own role at connection time, so that privileges bind them all the same.
"""

import os
from pathlib import Path
from typing import Any

import environ

from config import logs, openapi

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.FileAwareEnv()

ROLE = env.str("AMENDS_ROLE", "owner")
SECRET_KEY = env.str("DJANGO_SECRET_KEY", "insecure-development-key-never-for-production")
DEBUG = env.bool("DJANGO_DEBUG", False)
ALLOWED_HOSTS = env.list("DJANGO_ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "rest_framework_api_key",
    "drf_standardized_errors",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_prometheus",
    "ledger",
    "bookings",
    "recovery",
    "config.apps.ConfigConfig",
]
MIDDLEWARE = [
    "config.middleware.request_ids",
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "config.middleware.staff_see_everyone",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
APPEND_SLASH = False
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "/static/"
# The admin's own files, straight from the packages: nothing to collect.
WHITENOISE_USE_FINDERS = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- PostgreSQL ------------------------------------------------------------------------------------------------------

ROLES = {name: f"amends_{name}" for name in ("api", "worker", "retention")} | {"owner": ""}
STATEMENT_SECONDS = env.float("STATEMENT_SECONDS", 15.0)
LOCK_SECONDS = env.float("LOCK_SECONDS", 5.0)
# A server that is gone without a word (only over TCP) is noticed so soon, well within a lease.
LEASE_SECONDS = env.float("LEASE_SECONDS", 30.0)
DATABASE_SILENCE_SECONDS = env.int("DATABASE_SILENCE_SECONDS", int(max(1, LEASE_SECONDS / 3)))


def database(role: str) -> dict[str, Any]:
    """The connection settings of one role: its own URL, or DATABASE_URL with `role` set at connection time."""
    url_name = "DATABASE_URL" if role == "owner" else f"{role.upper()}_DATABASE_URL"
    default = "postgresql:///amends"
    found: dict[str, Any] = env.db_url(url_name, env.str("DATABASE_URL", default))
    options = [f"-c statement_timeout={int(STATEMENT_SECONDS * 1000)}", "-c TimeZone=UTC"]
    if role == "owner":
        options = ["-c TimeZone=UTC"]  # migrations may take long
    else:
        options.append(f"-c lock_timeout={int(LOCK_SECONDS * 1000)}")
        # Hot rows are in memory: let ids be looked up by index.
        options.append("-c random_page_cost=1.1")
        options.append("-c idle_in_transaction_session_timeout=60000")
        options.append("-c jit=off")  # compiling a sweep's statement takes longer than running it
        if url_name not in os.environ:
            options.append(f"-c role={ROLES[role]}")
    found["OPTIONS"] = {
        "tcp_user_timeout": DATABASE_SILENCE_SECONDS * 1000,
        "keepalives_idle": max(1, DATABASE_SILENCE_SECONDS // 2),
        "keepalives_interval": max(1, DATABASE_SILENCE_SECONDS // 4),
        "keepalives_count": 2,
        **found.get("OPTIONS", {}),
        "options": " ".join(options),
        "prepare_threshold": None,
        "connect_timeout": 5,
        "application_name": f"amends-{role}",
    }
    # A worker's loop keeps its connection for a run; a web process keeps it between requests.
    found["CONN_MAX_AGE"] = 60
    found["CONN_HEALTH_CHECKS"] = True
    found["DISABLE_SERVER_SIDE_CURSORS"] = True
    return found


DATABASES = {"default": database(ROLE)}
# As whom the retention sweep removes: no other role may. Of the same database, whatever its name.
RETENTION_LOGIN = {
    name: value
    for name, value in database("retention").items()
    if name in ("USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
}

# --- Celery ----------------------------------------------------------------------------------------------------------

BROKER_URL = env.str("BROKER_URL", "redis://127.0.0.1:6379/0")
RUN_SECONDS = env.float("RUN_SECONDS", 60.0)
TASK_TIME_LIMIT_SECONDS = env.float("TASK_TIME_LIMIT_SECONDS", 120.0)
VISIBILITY_TIMEOUT_SECONDS = env.float("VISIBILITY_TIMEOUT_SECONDS", 300.0)

# --- The engine. Order, held by a check: call < lease; heartbeat x 3 <= lease; run + call + settle < hard limit <
# --- visibility timeout; sweep <= lease.

HEARTBEAT_SECONDS = env.float("HEARTBEAT_SECONDS", 5.0)
SWEEP_SECONDS = env.float("SWEEP_SECONDS", 2.0)
CALL_SECONDS_MAX = env.float("CALL_SECONDS_MAX", 15.0)
SLOTS = env.int("SLOTS", 64)
RING_SECONDS = env.float("RING_SECONDS", 0.05)
PUBLISH_TIMEOUT_SECONDS = env.float("PUBLISH_TIMEOUT_SECONDS", 0.3)
PUBLISH_SILENCE_SECONDS = env.float("PUBLISH_SILENCE_SECONDS", 3.0)
BACKOFF_SECONDS = env.float("BACKOFF_SECONDS", 0.5)
BACKOFF_SECONDS_MAX = env.float("BACKOFF_SECONDS_MAX", 60.0)
# What one answer may ask of the whole fleet; and the circuit of a provider: after so many calls in a row without a definite
# answer nobody calls it for so long, doubling to the longest.
PROVIDER_THROTTLE_SECONDS_MAX = env.float("PROVIDER_THROTTLE_SECONDS_MAX", 600.0)
PROVIDER_FAILURES_MAX = env.int("PROVIDER_FAILURES_MAX", 20)
PROVIDER_OPEN_SECONDS = env.float("PROVIDER_OPEN_SECONDS", 1.0)
PROVIDER_OPEN_SECONDS_MAX = env.float("PROVIDER_OPEN_SECONDS_MAX", 60.0)
# Versions: how this build names itself, which format its checkpoints have (one that the build before it reads, until
# there is no way back to that), and after how long a job that no build can drive is put in front of a person.
BUILD = env.str("BUILD", "dev")
CHECKPOINT_FORMAT = env.int("CHECKPOINT_FORMAT", 2)
UNSUPPORTED_SECONDS = env.float("UNSUPPORTED_SECONDS", 600.0)
# Every sweep with its period: those that make jobs runnable, and those that may come late.
SWEEP_SECONDS_RARE = env.float("SWEEP_SECONDS_RARE", 60.0)
SWEEPS = {
    **dict.fromkeys(
        ("recovery.reclaim", "recovery.deadlines", "recovery.reconcile", "recovery.promote"),
        SWEEP_SECONDS,
    ),
    **dict.fromkeys(("recovery.ring", "bookings.expire_holds", "bookings.webhooks"), SWEEP_SECONDS),
    **dict.fromkeys(
        ("recovery.overdue", "recovery.unsupported", "recovery.retain"), SWEEP_SECONDS_RARE
    ),
}
# A job that is so long past its deadline after its pivot was sent is put in front of a person.
DEADLINE_AFTER_PIVOT_SECONDS = env.float("DEADLINE_AFTER_PIVOT_SECONDS", 3600.0)
# What has ended is removed so many days later; 0: never. Longer than providers and disputes may come back to it.
RETENTION_DAYS = env.int("RETENTION_DAYS", 0)
# Per saga, `name=seconds,...`: a job that has not sent its pivot by then goes back. A submission may set its own.
SAGA_DEADLINE_SECONDS = {
    name: float(seconds) for name, seconds in env.dict("SAGA_DEADLINE_SECONDS", default={}).items()
}

# --- Bookings --------------------------------------------------------------------------------------------------------

HOLD_SECONDS = env.float("HOLD_SECONDS", 900.0)
# How long a stay waits, about, for a room that is only held, where the room type says `wait`.
HOLD_WAIT_SECONDS = env.float("HOLD_WAIT_SECONDS", 60.0)
PAYMENT_URL = env.str("PAYMENT_URL", "http://127.0.0.1:8090")
TICKET_URL = env.str("TICKET_URL", "http://127.0.0.1:8090")
PROVIDER_CONNECT_SECONDS = env.float("PROVIDER_CONNECT_SECONDS", 1.0)
PROVIDER_CALL_SECONDS = env.float("PROVIDER_CALL_SECONDS", 8.0)
PROVIDER_KEY_LIFETIME_SECONDS = env.float("PROVIDER_KEY_LIFETIME_SECONDS", 86400.0)
PROVIDER_REQUEST_LIFETIME_SECONDS = env.float("PROVIDER_REQUEST_LIFETIME_SECONDS", 120.0)
PROVIDER_PROBE_LAG_SECONDS = env.float("PROVIDER_PROBE_LAG_SECONDS", 5.0)
# Webhooks: how long one try may take; from what wait to what longest, and for how long, it is made again; on which ports.
WEBHOOK_SECONDS = env.float("WEBHOOK_SECONDS", 10.0)
WEBHOOK_BACKOFF_SECONDS = env.float("WEBHOOK_BACKOFF_SECONDS", 5.0)
WEBHOOK_BACKOFF_SECONDS_MAX = env.float("WEBHOOK_BACKOFF_SECONDS_MAX", 3600.0)
WEBHOOK_TERM_SECONDS = env.float("WEBHOOK_TERM_SECONDS", 3 * 86400.0)
WEBHOOK_PORTS = env.list("WEBHOOK_PORTS", cast=int, default=[443])
# For tests and development only: without TLS, and to these networks beside the public internet.
WEBHOOK_HTTP = env.bool("WEBHOOK_HTTP", False)
WEBHOOK_NETWORKS = env.list("WEBHOOK_NETWORKS", default=[])

# --- API -------------------------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["bookings.api.auth.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["bookings.api.auth.HasTenant"],
    "DEFAULT_PARSER_CLASSES": ["bookings.api.parsers.StrictJsonParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "bookings.api.openapi.Schema",
    "EXCEPTION_HANDLER": "bookings.api.problems.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,  # a parameter like any other that no route declares
}
DRF_STANDARDIZED_ERRORS = {
    "EXCEPTION_HANDLER_CLASS": "bookings.api.problems.ProblemHandler",
    "EXCEPTION_FORMATTER_CLASS": "bookings.api.problems.ProblemFormatter",
}
SPECTACULAR_SETTINGS = openapi.SPECTACULAR
DATA_UPLOAD_MAX_MEMORY_SIZE = 256 * 1024
# Requests of one process that may wait for news (`Prefer: wait`) at a time: fewer than it has threads.
WAITERS_MAX = env.int("WAITERS_MAX", 4)
# Limits in any 60 s: requests of a key without a rate of its own; wrong keys of an address and of a prefix. Counted here.
RATE_PER_MINUTE = env.int("RATE_PER_MINUTE", 12_000)
WRONG_KEYS_PER_MINUTE = env.int("WRONG_KEYS_PER_MINUTE", 100)
RATE_URL = env.str("RATE_URL", BROKER_URL)
# New bookings are refused: of a tenant with so many waiting, of all while the oldest work waits for so long; 0: never.
OPEN_JOBS_MAX = env.int("OPEN_JOBS_MAX", 20_000)
BACKLOG_SECONDS_MAX = env.float("BACKLOG_SECONDS_MAX", 1800.0)
TRUSTED_PROXIES = env.int("TRUSTED_PROXIES", 0)  # in front of us, who add to X-Forwarded-For
KEY_ENVIRONMENT = env.str("KEY_ENVIRONMENT", "")  # what API keys begin with; 1 to 16 of a-z, 0-9

# --- Security, logs, metrics -----------------------------------------------------------------------------------------

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_CSP = openapi.POLICY
SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_SECONDS > 0
SECURE_HSTS_PRELOAD = SECURE_HSTS_SECONDS > 0
SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", False)
# The API refuses; probes come from within.
SECURE_REDIRECT_EXEMPT = [r"^v1/", r"^(livez|readyz|metrics)$"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if TRUSTED_PROXIES else None
SESSION_COOKIE_SECURE = env.bool("SESSION_COOKIE_SECURE", False)
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE
X_FRAME_OPTIONS = "DENY"
PROMETHEUS_EXPORT_MIGRATIONS = False
LOGGING_CONFIG = None
logs.configure(env.str("LOG_LEVEL", "INFO"))

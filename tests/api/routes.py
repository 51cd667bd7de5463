"""Every route of the service, declared: who may call it, with which method, and what the answer is then.

A test walks the URL table and fails on a route that is not here; so a new one is a decision and never an oversight.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

from bookings.models import Scope

READ, WRITE, HOOKS = Scope.READ.value, Scope.WRITE.value, Scope.WEBHOOKS.value
METHODS = ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "PATCH", "POST", "DELETE")
SAFE = METHODS[:4]


@dataclass(frozen=True)
class Allowed:
    """With this scope, this answer. `body`: which of the test's bodies is sent."""

    scope: str
    status: int
    body: str = ""


def reading(scope: str) -> dict[str, Allowed]:
    return dict.fromkeys(("GET", "HEAD"), Allowed(scope, 200))


# By its tenant's key alone; a method that is not named is refused. Of these, what names a booking or an endpoint is its
# owner's, and a 404 to everybody else.
TENANTS: dict[str, dict[str, Allowed]] = {
    "v1/bookings": {**reading(READ), "POST": Allowed(WRITE, 202, "stay")},
    "v1/bookings/bulk": {"POST": Allowed(WRITE, 200, "bulk")},
    "v1/bookings/<str:booking_id>": reading(READ),
    "v1/bookings/<str:booking_id>/cancel": {"POST": Allowed(WRITE, 202)},
    "v1/bookings/<str:booking_id>/journal": reading(READ),
    "v1/bookings/<str:booking_id>/operations": reading(READ),
    "v1/report": reading(READ),
    "v1/hotels": reading(READ),
    "v1/hotels/<str:code>/availability": reading(READ),
    "v1/quotes": {"POST": Allowed(READ, 200, "stay")},
    "v1/webhooks": {**reading(HOOKS), "POST": Allowed(HOOKS, 201, "hook")},
    "v1/webhooks/<str:endpoint_id>": {**reading(HOOKS), "DELETE": Allowed(HOOKS, 204)},
    "v1/webhooks/<str:endpoint_id>/secret": {"POST": Allowed(HOOKS, 200)},
    "v1/webhooks/<str:endpoint_id>/deliveries": reading(HOOKS),
}
OWNED = ("<str:booking_id>", "<str:endpoint_id>")
# Without a key, read only, and nothing of a tenant in it. `metrics` is for the operators' network; a proxy in front of the
# service does not pass it on.
ANYBODY = {"livez", "readyz", "metrics", "v1/schema", "v1/docs"}
# Behind the log-in of staff: the site's own pages, and the same six of every model.
SITE_PAGES = {
    "": "",
    "logout/": "logout/",
    "password_change/": "password_change/",
    "password_change/done/": "password_change/done/",
    "autocomplete/": "autocomplete/",
    "jsi18n/": "jsi18n/",
    "r/<path:content_type_id>/<path:object_id>/": "r/1/1/",
    "auth/user/<id>/password/": "auth/user/1/password/",
    "^(?P<app_label>ledger|auth|bookings)/$": "ledger/",
    "(?P<url>.*)$": "anything/else/",
}
MODEL_PAGES = {
    "": "",
    "add/": "add/",
    **{f"<path:object_id>/{page}": f"1/{page}" for page in ("", "history/", "delete/", "change/")},
}
MODELS = {
    "auth": ["user", "group"],
    "bookings": [
        "hotel", "roomtype", "roommonth", "roomnight", "reservation", "booking", "apikey", "webhookendpoint",
        "webhookdelivery",
    ],
    "ledger": ["job", "tenant", "submission", "sweep"],
}  # fmt: skip
OF_MODELS = {
    f"admin/{app}/{model}/{pattern}": f"/admin/{app}/{model}/{path}"
    for app, models in MODELS.items()
    for model in models
    for pattern, path in MODEL_PAGES.items()
}
STAFF = {f"admin/{pattern}": f"/admin/{path}" for pattern, path in SITE_PAGES.items()} | OF_MODELS
LOG_IN = "admin/login/"


def walk(resolver: Any = None, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    """What is really routed."""
    found: list[URLPattern | URLResolver] = (resolver or get_resolver()).url_patterns
    for one in found:
        path = prefix + str(one.pattern)
        if isinstance(one, URLPattern):
            yield path, one
        else:
            yield from walk(one, path)

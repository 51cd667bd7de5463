"""Liveness, readiness and metrics: the routes that belong to no app."""

import os
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus

from django.db import Error, connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    generate_latest,
    multiprocess,
)

from bookings.api import problems
from ledger import metrics as ledger_metrics
from ledger import tenancy

READY_MS = 1_000
METHODS = ("GET", "HEAD")
View = Callable[[HttpRequest], HttpResponse]


def read_only(view: View) -> View:
    """405 for other methods, in the words of the API: Django's own decorator has an empty page."""

    @wraps(view)
    def checked(request: HttpRequest) -> HttpResponse:
        if request.method in METHODS:
            return view(request)
        return problems.answer(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": ", ".join(METHODS)})

    return checked


@read_only
def live(_request: HttpRequest) -> JsonResponse:
    """The process answers. Asks nothing of database or broker."""
    return JsonResponse({"live": True})


@read_only
def ready(_request: HttpRequest) -> HttpResponse:
    """The database answers in time. Asks nothing of the broker: bookings are accepted without it."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {READY_MS}")
            cursor.execute("SELECT 1")
    except Error:
        return problems.answer(
            HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "the database does not answer",
            headers={"Retry-After": str(problems.RETRY_AFTER_SECONDS)},
        )  # fmt: skip
    return JsonResponse({"ready": True})


@read_only
def metrics(_request: HttpRequest) -> HttpResponse:
    """The ledger's figures, and those of all processes that share PROMETHEUS_MULTIPROC_DIR."""
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # has no types
        registry.register(ledger_metrics.collector())
    with tenancy.everyone():
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

"""Liveness and metrics: the routes that belong to no app."""

import os

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_GET
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    generate_latest,
    multiprocess,
)

from ledger import metrics as ledger_metrics


@require_GET
def live(_request: HttpRequest) -> JsonResponse:
    """The process answers. Asks nothing of database or broker."""
    return JsonResponse({"live": True})


@require_GET
def metrics(_request: HttpRequest) -> HttpResponse:
    """The ledger's figures, and those of all processes that share PROMETHEUS_MULTIPROC_DIR."""
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # has no types
        registry.register(ledger_metrics.collector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

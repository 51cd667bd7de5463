"""What the database says about itself, collected at each scrape: right after any crash, and the same from every process.

Process metrics (outcomes, seconds, cost, publications, refused writes) are in `ledger.telemetry`.
"""

from collections.abc import Iterator
from typing import override

from django.db import Error
from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ledger import selectors


class LedgerCollector(Collector):
    def describe(self) -> list[Metric]:
        return []  # so that registering asks the database nothing

    @override
    def collect(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("ledger_jobs", "Jobs by saga and state", labels=["saga", "state"])
        age = GaugeMetricFamily(
            "ledger_oldest_ready_age_seconds",
            "Age of the oldest job that a worker could run now",
            labels=["lane"],
        )
        up = GaugeMetricFamily("ledger_database_up", "1 when this scrape could read the ledger")
        try:
            for saga, state, count in selectors.jobs_by_state():
                jobs.add_metric([saga, state], count)
            for lane, seconds in selectors.oldest_runnable_seconds().items():
                age.add_metric([lane], seconds)
        except Error:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield from (jobs, age, up)


_collector = LedgerCollector()


def register() -> None:
    """Add the collector to the process's registry, once."""
    if "ledger_collector" not in _registered:
        REGISTRY.register(_collector)
        _registered.add("ledger_collector")


_registered: set[str] = set()


def collector() -> LedgerCollector:
    return _collector

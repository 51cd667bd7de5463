"""What the database says about itself, collected at each scrape: right after any crash, and the same from every process.

Process metrics (outcomes, seconds, cost, publications, refused writes) are in `ledger.telemetry`.
"""

import math
from collections.abc import Iterator
from typing import override

from django.db import Error
from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ledger import permits, selectors, watch


class LedgerCollector(Collector):
    def describe(self) -> list[Metric]:
        return []  # so that registering asks the database nothing

    @override
    def collect(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily(
            "ledger_jobs",
            "Jobs that have not ended, by saga and state",
            labels=["saga", "state"],
        )
        age = GaugeMetricFamily(
            "ledger_oldest_ready_age_seconds",
            "Age of the oldest job that a worker could run now",
            labels=["lane"],
        )
        swept = GaugeMetricFamily(
            "ledger_sweep_age_seconds",
            "Time since each sweep last succeeded; infinite for one that never did",
            labels=["sweep"],
        )
        failed = GaugeMetricFamily(
            "ledger_sweep_failing",
            "1 for a sweep whose last pass failed",
            labels=["sweep"],
        )
        opened = GaugeMetricFamily(
            "ledger_provider_open",
            "Openings in a row of a provider's circuit; 0 while it is closed",
            labels=["provider"],
        )
        undone = GaugeMetricFamily(
            "ledger_undone_recently",
            "Jobs that ended undone in the last five minutes, of the tenant with the most",
        )
        up = GaugeMetricFamily("ledger_database_up", "1 when this scrape could read the ledger")
        try:
            for saga, state, count in selectors.open_jobs():
                jobs.add_metric([saga, state], count)
            for one in watch.passes():
                age_seconds = math.inf if one.age_seconds is None else one.age_seconds
                swept.add_metric([one.name], age_seconds)
                failed.add_metric([one.name], one.is_failing())
            for lane, seconds in selectors.oldest_runnable_seconds().items():
                age.add_metric([lane], seconds)
            for provider in permits.standing():
                opened.add_metric([provider.name], provider.opened)
            undone.add_metric([], max((n for _, n in selectors.undone_recently()), default=0))
        except Error:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield from (jobs, age, swept, failed, opened, undone, up)


_collector = LedgerCollector()


def register() -> None:
    """Add the collector to the process's registry, once."""
    if "ledger_collector" not in _registered:
        REGISTRY.register(_collector)
        _registered.add("ledger_collector")


_registered: set[str] = set()


def collector() -> LedgerCollector:
    return _collector

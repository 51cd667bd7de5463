"""The Django app of the ledger."""

from typing import override

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    name = "ledger"

    @override
    def ready(self) -> None:
        from ledger import checks, crashpoints, metrics

        checks.register()
        metrics.register()
        crashpoints.arm_from_environment()

"""The Django app that looks after the ledger."""

from django.apps import AppConfig


class RecoveryConfig(AppConfig):
    name = "recovery"

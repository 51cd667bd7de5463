"""The travel domain as a Django app: loading it makes the trip known to this build, and its bookings to retention."""

from typing import override

from django.apps import AppConfig


class BookingsConfig(AppConfig):
    name = "bookings"
    verbose_name = "Bookings"

    @override
    def ready(self) -> None:
        from bookings import retention, saga

        assert saga.trip is not None, "importing it has registered it"
        retention.register()

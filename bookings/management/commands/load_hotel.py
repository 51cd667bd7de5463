"""`manage.py load_hotel`: the hotel of the replay, its rates, capacities, nights and tenants. May be run again."""

import json
from dataclasses import asdict
from typing import Any, override

from django.core.management.base import BaseCommand, CommandParser

from bookings import hotel_books


class Command(BaseCommand):
    help = "Load the hotel RESORT from the stays that come with the project."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--json", action="store_true", dest="as_json", help="one JSON object on stdout"
        )

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        loaded = hotel_books.load()
        if options["as_json"]:
            self.stdout.write(json.dumps(asdict(loaded), default=str))
        else:
            self.stdout.write(
                f"{loaded.hotel}: {loaded.room_types} room types, {loaded.months} months, {loaded.nights} nights, "
                f"{loaded.tenants} tenants; first arrival {loaded.first_arrival}"
            )

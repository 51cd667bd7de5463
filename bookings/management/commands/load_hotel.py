"""`manage.py load_hotel`: the hotel of the replay, its rates, capacities, nights and tenants. May be run again."""

import json
from dataclasses import asdict
from typing import Any, override

from django.core.management.base import CommandParser

from bookings import hotel_books
from bookings.models import RoomType, WhenHeld
from ledger.management.operator import OperatorCommand


class Command(OperatorCommand):
    help = "Load the hotel RESORT from the stays that come with the project."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--json", action="store_true", dest="as_json", help="one JSON object on stdout"
        )
        parser.add_argument(
            "--when-held",
            choices=[str(policy) for policy in WhenHeld],
            help="what a booking does that lacks a room only because of holds (as it was: fail at first)",
        )

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        loaded = hotel_books.load()
        if options["when_held"]:
            room_types = RoomType.objects.filter(hotel__code=loaded.hotel)
            room_types.update(when_held=options["when_held"])
        if options["as_json"]:
            self.stdout.write(json.dumps(asdict(loaded), default=str))
        else:
            self.stdout.write(
                f"{loaded.hotel}: {loaded.room_types} room types, {loaded.months} months, {loaded.nights} nights, "
                f"{loaded.tenants} tenants; first arrival {loaded.first_arrival}"
            )

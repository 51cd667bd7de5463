"""`manage.py sandbox`: runs the stand-in provider in the foreground. It needs no database and no
broker.
"""

from typing import Any, override

from django.core.management.base import BaseCommand, CommandParser

from bookings.sandbox import __main__ as sandbox
from bookings.sandbox import server


class Command(BaseCommand):
    help = "Run the sandbox provider until SIGTERM or Ctrl-C."
    requires_system_checks: list[str] = []

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        sandbox.add_arguments(parser)

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        server.run(
            host=options["host"], port=options["port"], store=options["store"], seed=options["seed"]
        )

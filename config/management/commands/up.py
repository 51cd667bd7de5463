"""`manage.py up`: the whole stack on this machine until Ctrl-C, with a hotel, a key and the
addresses to try it.

Kept here: it ends with nothing left running, whichever way it ends; a process of the stack that
ends by itself ends the rest too, with the end of its log, instead of leaving a stack that only
looks alive.
"""

import json
import os
from typing import Any, override

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config import processes, supervisor

TENANT = "demo"
CURL = """curl -i {url}/v1/bookings \\
  -H 'Authorization: Bearer {key}' -H 'Idempotency-Key: my-first-booking' \\
  -H 'Content-Type: application/json' \\
  -d '{{"hotel": "RESORT", "room_type": "A", "arrival": "{arrival}", "nights": 2}}'"""
CHECK_SECONDS = 3600.0


class Command(BaseCommand):
    help = "Run the whole stack until Ctrl-C; PostgreSQL and Valkey too unless their URLs are set."
    requires_system_checks: list[str] = []

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--port", type=int, default=8000, help="the API's port; 0 chooses a free one"
        )
        parser.add_argument(
            "--concurrency", type=int, default=2, help="processes of the forward worker"
        )

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        with processes.Ending() as ending:
            try:
                stack = supervisor.Stack(
                    os.environ,
                    port=options["port"],
                    concurrency=options["concurrency"],
                    ending=ending,
                )
            except (OSError, OverflowError) as error:
                raise CommandError(f"cannot listen on port {options['port']}: {error}") from error
            with stack:
                self._run(stack, ending)

    def _run(self, stack: supervisor.Stack, ending: processes.Ending) -> None:
        try:
            stack.start()
            hotel = json.loads(stack.manage("load_hotel", "--json"))
            key = json.loads(stack.manage("apikey", "create", TENANT, "--json"))["key"]
        except supervisor.StackError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"API        {stack.api_url}/v1/bookings")
        self.stdout.write(f"sandbox    {stack.sandbox_url}/books/summary")
        self.stdout.write(f"API key    {key} (tenant {TENANT}, shown once)")
        self.stdout.write(f"logs       {stack.workdir}")
        self.stdout.write("\nTo book, and to see what became of it (-i shows its Location):\n")
        self.stdout.write(CURL.format(url=stack.api_url, key=key, arrival=hotel["first_arrival"]))
        self.stdout.write("\nCtrl-C stops everything.")
        self.stdout.flush()
        while not ending.wait_until(lambda: bool(stack.ended()), CHECK_SECONDS):
            pass
        name, status = next(iter(stack.ended().items()))
        raise CommandError(
            str(supervisor.StackError(name, f"ended with status {status}", stack.log(name)))
        )

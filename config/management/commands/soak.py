"""`manage.py soak`: the drill `mixed` again and again, window after window, over many jobs.

Kept here: each window draws its own faults from the seed, is healed, comes to rest and is judged, and the last judgement
goes over the jobs of all of them.
"""

from dataclasses import replace
from typing import Any, override

from django.core.management.base import BaseCommand, CommandParser

from config.management.commands import drill
from recovery.drills import mixed

JOBS, WINDOW = 10_000, 400


class Command(BaseCommand):
    help = "All faults mixed over many jobs, in windows; fails on a violation."
    requires_system_checks: list[str] = []

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        drill.add_options(parser, jobs=JOBS)
        parser.add_argument("--window", type=int, default=WINDOW, help="bookings of one window")

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        jobs, window = options["jobs"], max(1, min(options["window"], options["jobs"]))
        windows = [replace(mixed.DRILL, name=f"mixed-{n + 1}") for n in range(-(-jobs // window))]
        drill.finish(self, drill.perform(windows, {**options, "jobs": window}), options, "soak")

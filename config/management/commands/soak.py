"""`manage.py soak`: all faults that this machine can do, mixed, window after window, over many jobs.

Kept here: the seed deals what each window meets, each is healed, comes to rest and is judged, and the last judgement goes
over the jobs of all of them. What this machine cannot do is left out in so many words.
"""

from pathlib import Path
from typing import Any, override

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config import embedded, soak_place
from config.management.commands import drill
from recovery.drills import disk_full, failover, soak, totals
from recovery.drills.report import Report

JOBS, WINDOW, LAST_JOBS = 10_000, 400, 60
LAST = (disk_full.DRILL, failover.DRILL)


class Command(BaseCommand):
    help = "All faults mixed over many jobs, in windows; fails on a violation."
    requires_system_checks: list[str] = []

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        drill.add_options(parser, jobs=JOBS)
        parser.add_argument("--window", type=int, default=WINDOW, help="bookings of one window")
        parser.add_argument(
            "--only-windows",
            action="store_true",
            help="neither a full disk nor a lost tail at the end",
        )

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        jobs, window = options["jobs"], max(1, min(options["window"], options["jobs"]))
        if (last := _logs_of_the_last(options)) and last.exists():
            raise CommandError(f"--logs: cannot make {last}: it is there")
        has_faketime = bool(soak_place.faketime())
        own = embedded.own[0].names() if embedded.own else frozenset[str]()
        kinds = soak.possible(own, has_faketime=has_faketime)
        drills = soak.drills(soak.deal(options["seed"], -(-jobs // window), kinds))
        found = drill.perform(drills, {**options, "jobs": window}, soak_place.SoakPlace)
        if not has_faketime:
            found.left_out[soak.SKEW] = "libfaketime is not installed here"
        if not options["only_windows"]:
            _add_last(found, options)
        totals.conclude(found, has_faketime=has_faketime)
        drill.finish(self, found, options, "soak", totals.markdown)


def _add_last(found: Report, options: dict[str, Any]) -> None:
    """On a stack of their own: one ends with a tail that is lost, which must not be held against the windows."""
    place = {"jobs": LAST_JOBS, "logs": _logs_of_the_last(options)}
    try:
        last = drill.perform(LAST, {**options, **place})
    except Exception as error:  # noqa: BLE001  what the windows have shown is told all the same
        found.failures.append(f"the last drills came to nothing: {error!r}")
        return
    found.results += last.results
    found.left_out |= last.left_out
    found.failures += last.failures
    found.run["seconds"] += last.run["seconds"]


def _logs_of_the_last(options: dict[str, Any]) -> Path | None:
    logs: Path | None = options["logs"]
    return logs and logs.with_name(f"{logs.name}-last")

"""`manage.py sweeps`: when each sweep last succeeded; exits 1 when one is overdue, so that a dead beat is seen."""

import json
from dataclasses import asdict
from typing import Any, override

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger import watch

ROW = "{:<24}{:>12}{:>9}  {}"


class Command(BaseCommand):
    help = f"When each sweep last succeeded. Exits 1 if one is older than {watch.OVERDUE_PERIODS} of its periods."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json")

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        passes = watch.passes()
        overdue = [one.name for one in passes if one.is_overdue()]
        if options["as_json"]:
            found = [asdict(one) | {"overdue": one.is_overdue()} for one in passes]
            self.stdout.write(json.dumps({"sweeps": found, "ok": not overdue}))
        else:
            self.stdout.write(ROW.format("sweep", "succeeded", "handled", "").rstrip())
            self.stdout.write("\n".join(_row(one) for one in passes))
        if overdue:
            raise CommandError(
                f"overdue: {', '.join(overdue)}; is beat running, with a worker of the sweeps' lane?"
            )


def _row(one: watch.Pass) -> str:
    age = "never" if one.age_seconds is None else f"{one.age_seconds:.1f} s ago"
    marks = ["OVERDUE"] if one.is_overdue() else []
    if one.is_failing():
        marks.append(f"fails: {one.failure}")
    return ROW.format(one.name, age, one.count, ", ".join(marks)).rstrip()

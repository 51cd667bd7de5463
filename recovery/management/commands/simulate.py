"""`manage.py simulate`: many histories of the real engine over a database of their own, each from one seed.

Exit status 0: no invariant was violated, and every declared class of cases was met (runs of 200 histories or more).
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, override

from django.core.management.base import BaseCommand, CommandError, CommandParser

from recovery.simulation import database, runfile, runs

SHOWN = 40  # of the last lines of a history that failed


class Command(BaseCommand):
    help = "Play seeded histories with faults against every invariant; the same seed is the same history."
    requires_system_checks: list[str] = []

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--histories", type=int, default=300)
        parser.add_argument("--seed", type=int, default=1, help="the first; the others follow it")
        parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object")
        parser.add_argument("--resume", type=Path, metavar="FILE", help="go on with this run file")
        parser.add_argument(
            "--merge", type=Path, nargs="+", default=[], metavar="FILE", help="add these run files"
        )
        parser.add_argument("--trace", action="store_true", help="print every event")

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        first, count = options["seed"], options["histories"]
        try:
            total = _begun(options["resume"], options["merge"])
        except (OSError, ValueError) as error:
            raise CommandError(str(error)) from error
        self.stderr.write(f"seeds {first} to {first + count - 1}")

        def told(one: runs.Told) -> None:
            self._tell(one, trace=options["trace"])
            if options["resume"] and one.seed % 50 == 0:
                runfile.write(options["resume"], total)

        with database.simulated(f"amends_simulation_{first}_{count}_{os.getpid()}"):
            runs.play(iter(range(first, first + count)), total, told)
        if options["resume"]:
            runfile.write(options["resume"], total)
        self._report(total, as_json=options["as_json"])
        if total.violations or total.missing():
            raise SystemExit(1)

    def _tell(self, one: runs.Told, *, trace: bool) -> None:
        lines = one.lines if trace else one.lines[-SHOWN:] if one.violations else []
        for line in lines:
            self.stderr.write(line)
        for v in one.violations:
            self.stderr.write(f"{v.invariant} does not hold: {v.what}")
            self.stderr.write(
                f"replay it: python manage.py simulate --histories 1 --seed {v.seed} --trace"
            )
        if trace:
            self.stderr.write(f"digest {one.digest}")

    def _report(self, total: runs.Total, *, as_json: bool) -> None:
        told = total.as_json()
        if as_json:
            self.stdout.write(json.dumps(told))
            return
        self.stdout.write(
            f"{total.histories} histories, {len(total.violations)} violations, {total.seconds:.1f} s"
        )
        for name in told["missing"]:
            self.stdout.write(f"no case of {name}")


def _begun(resume: Path | None, merge: Sequence[Path]) -> runs.Total:
    """What is there already. Read before anything is played: hours of histories must not end in a wrong path."""
    total = runfile.resumed(resume) if resume else runfile.fresh()
    for path in merge:
        total.merge(runfile.read(path))
    return total

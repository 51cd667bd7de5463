"""`manage.py gate`: the fixed evaluation set against its thresholds. Prints a table; exit status 0 only if all of it holds.

Kept here: a part that raises, prints nothing or takes too long is a miss, never a pass.
"""

import json
import time
import tomllib
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, override

from django.core.management import call_command
from django.core.management.base import BaseCommand

from config import logs, processes
from config.gate import parts

THRESHOLDS = Path(parts.__file__).with_name("thresholds.toml")


class Command(BaseCommand):
    help = "Run the evaluation gate: a fixed set of experiments against committed thresholds."
    requires_system_checks: list[str] = []

    @override
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "parts", nargs="*", metavar="PART", help=f"of {', '.join(parts.PARTS)}; all"
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object")

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        unknown = sorted(set(options["parts"]) - set(parts.PARTS))
        if unknown:
            self.stderr.write(
                f"there is no part {', '.join(unknown)}, only {', '.join(parts.PARTS)}"
            )
            raise SystemExit(2)
        logs.configure("CRITICAL")  # the faults are ours
        call_command("migrate", verbosity=0)
        begun = time.monotonic()
        with processes.Ending() as ending:
            lines = list(self._measured(options["parts"] or list(parts.PARTS), ending))
        seconds = round(time.monotonic() - begun)
        self._show(lines, seconds, as_json=options["as_json"])
        if missed(lines):
            raise SystemExit(1)

    def _measured(self, names: Sequence[str], ending: processes.Ending) -> Iterator[parts.Line]:
        limits = tomllib.loads(THRESHOLDS.read_text(encoding="utf-8"))
        for name in names:
            self.stderr.write(f"gate: {name}")
            begun = time.monotonic()
            try:
                yield from parts.PARTS[name](limits[name], ending)
            except Exception as error:  # noqa: BLE001  whatever stops a part is a miss of that part
                text = f"raised {type(error).__name__}: {error}"
                yield parts.Line(name, text, "nothing", "an end", is_ok=False)
            self.stderr.write(f"gate: {name} took {time.monotonic() - begun:.0f} s")

    def _show(self, lines: Sequence[parts.Line], seconds: int, *, as_json: bool) -> None:
        if as_json:
            found = [asdict(line) for line in lines]
            self.stdout.write(
                json.dumps({"passed": not missed(lines), "seconds": seconds, "lines": found})
            )
            return
        for line in table(lines):
            self.stdout.write(line)
        verdict = (
            f"{len(missed(lines))} of {len(lines)} missed"
            if missed(lines)
            else f"all {len(lines)} hold"
        )
        self.stdout.write(f"gate: {verdict}, {seconds} s")


def missed(lines: Iterable[parts.Line]) -> list[parts.Line]:
    return [line for line in lines if not line.is_ok]


def table(lines: Sequence[parts.Line]) -> Iterator[str]:
    """What people read."""
    width = max((len(line.what) for line in lines), default=0)
    for line in lines:
        mark = "ok  " if line.is_ok else "MISS"
        yield f"{mark} {line.part:<11}{line.what:<{width}}  {line.measured!s:>9}  {line.allowed}"

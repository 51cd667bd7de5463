"""`manage.py crash`: a fault at every named gap of the code, in process, and real SIGKILLs of workers and their children.

Works on a test database of its own, never on the one that is configured. Writes the run file and fails on a case that does
not converge and on a declared point that nothing reached. With `--saga`, a definition of yours runs through the first half.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, override

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.test.utils import setup_databases, teardown_databases
from django.utils.module_loading import import_string

from config import logs
from ledger import saga
from recovery.matrix import report, survey
from recovery.matrix.report import Report, Row

SAGAS = ("bookings.saga:trip", "recovery.matrix.errand:errand")
OUT = Path("docs/runs/crash.md")
RESULTS_VARIABLE = "AMENDS_CRASH_RESULTS"
PROCESSES_SECONDS = 1_500


class Command(BaseCommand):
    help = "Run the crash matrix: every crash point x position x kind of fault, and real SIGKILLs."

    @override
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--saga",
            action="append",
            metavar="PACKAGE.MODULE:NAME",
            help="this one only; in process",
        )
        parser.add_argument(
            "--script", default="", help="only the cases of this script, by its name"
        )
        parser.add_argument(
            "--in-process", action="store_true", help="no real processes, no run file"
        )
        parser.add_argument("--json", action="store_true", help="one object on standard output")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        logs.configure("CRITICAL")  # the faults are ours
        names, started = options["saga"] or SAGAS, time.perf_counter()
        is_whole = not (options["saga"] or options["script"] or options["in_process"])
        rows, reached = self._in_process(names, options["script"])
        seconds = {"in process": time.perf_counter() - started}
        if is_whole:
            started = time.perf_counter()
            rows += _processes(self.stderr.write)
            seconds["processes"] = time.perf_counter() - started
        found = Report(rows, reached | {row.point for row in rows})
        self._show(found, options)
        if is_whole:
            out = settings.BASE_DIR / OUT
            out.parent.mkdir(exist_ok=True)
            out.write_text("\n".join(_run_file(found, names, seconds)) + "\n")
        if found.failed or not found.rows or (is_whole and found.never_reached):
            raise CommandError(f"{len(found.failed)} of {len(found.rows)} cases failed; see above")

    def _in_process(self, names: Sequence[str], script: str) -> tuple[list[Row], frozenset[str]]:
        rows: list[Row] = []
        reached: frozenset[str] = frozenset()
        with _test_database():
            for name in names:
                found = survey.survey(_saga(name), script)
                self.stderr.write(f"{name}: {len(found.results)} cases")
                rows += [report.row_of(result) for result in found.results]
                reached |= found.reached
        return rows, reached

    def _show(self, found: Report, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(found.as_json()))
            return
        for line in (*report.table(found), "", *report.failures(found)):
            self.stdout.write(line)


def _saga(name: str) -> saga.Saga:
    try:
        found = import_string(name.replace(":", "."))
    except ImportError as error:
        raise CommandError(f"--saga {name}: {error}") from error
    if not isinstance(found, saga.Saga):
        raise CommandError(f"--saga {name} is no saga")
    return found


@contextmanager
def _test_database() -> Iterator[None]:
    made = setup_databases(verbosity=0, interactive=False, serialized_aliases=[])
    try:
        yield
    finally:
        connections.close_all()
        teardown_databases(made, verbosity=0)


def _processes(say: Any) -> list[Row]:
    """The second half: its tests write a line for each case."""
    with tempfile.TemporaryDirectory() as place:
        results = Path(place) / "results"
        results.touch()
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "crash",
            "-q",
            "-p",
            "no:randomly",
            "tests/crash",
        ]
        ended = subprocess.run(  # noqa: S603  our own interpreter and tests
            command,
            cwd=settings.BASE_DIR,
            env={**os.environ, RESULTS_VARIABLE: str(results)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PROCESSES_SECONDS,
            check=False,
        )
        say(ended.stdout[-4_000:])
        rows = [Row(**json.loads(line)) for line in results.read_text().splitlines()]
    if ended.returncode and not any(row.why for row in rows):
        rows.append(
            Row(
                "processes",
                "bookings.trip",
                "call.after",
                "kill",
                "",
                "",
                "failed",
                "the tests failed",
            )
        )
    return rows


def _run_file(found: Report, names: Sequence[str], seconds: dict[str, float]) -> Iterator[str]:
    real = sum(row.who != "in process" for row in found.rows)
    yield "# Crash matrix: one run"
    yield ""
    yield "Written by `make crash` (`manage.py crash`); what the cases are stands in [crash-matrix.md](../crash-matrix.md)."
    yield ""
    yield f"- cases: {len(found.rows) - real} in process ({', '.join(names)}), {real} of real processes"
    yield f"- result: {'passed' if found.has_passed else 'FAILED'}, {len(found.failed)} cases failed"
    yield "- seconds: " + ", ".join(f"{value:.0f} {name}" for name, value in seconds.items())
    yield f"- date: {time.strftime('%Y-%m-%d', time.gmtime())}; commit: {commit()}; seed: none, the cases are enumerated"
    yield f"- machine: {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    yield ""
    yield "## Outcomes per point"
    yield ""
    yield from report.table(found)
    yield ""
    yield "## Failure cases"
    yield ""
    yield from report.failures(found)
    yield ""
    yield "Points of outgoing webhooks do not exist yet: there are no webhooks."


def commit() -> str:
    ended = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607  whichever git the machine has
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout.strip() or "unknown"

"""`manage.py drill NAME|all`: experiments on a whole stack of real processes, judged by the provider's books, the ledger and
what clients were told.

Kept here: exit status 0 means that every drill passed, and nothing else does. Progress goes to standard error, one JSON
object (with --json) to standard output; whichever way it ends, no process, no port and no directory stays.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, override

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config import drill_place, logs, processes, supervisor
from config.management.commands import demo
from config.management.commands.crash import commit
from recovery.drills import catalogue, report, runner
from recovery.drills.run import Drill

JOBS = 100
GRACE_SECONDS = 6.0
ALL = "all"


class Command(BaseCommand):
    help = "Run one drill, or all of them, on real processes; fails on a violation."
    requires_system_checks: list[str] = []

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", choices=[*catalogue.DRILLS, ALL], metavar="NAME|all")
        add_options(parser, jobs=JOBS)

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        wanted = list(catalogue.DRILLS) if options["name"] == ALL else [options["name"]]
        drills = [catalogue.DRILLS[name] for name in wanted]
        finish(self, perform(drills, options), options, "drills")


def add_options(parser: CommandParser, *, jobs: int) -> None:
    parser.add_argument("--jobs", type=int, default=jobs, help="bookings of each drill")
    parser.add_argument("--seed", type=int, default=1987, help="of everything left to chance")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object")
    parser.add_argument(
        "--logs", type=Path, metavar="DIR", help="a new directory to leave the logs in"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write report and plot there")


def perform(
    drills: Sequence[Drill],
    options: dict[str, Any],
    kind: type[drill_place.DrillPlace] = drill_place.DrillPlace,
) -> report.Report:
    """All of them on one stack, and the judgement of all at the end; the stack is gone when this returns."""
    if options["jobs"] < 1:
        raise CommandError("--jobs is at least 1")
    found = report.Report(run=_about(options))
    begun = time.monotonic()
    logs.configure("ERROR")  # the faults are ours
    say(f"seed {options['seed']}, {options['jobs']} jobs a drill")
    with processes.Ending() as ending:
        try:
            with _place(ending, options["logs"], kind) as place:
                _run(place, drills, options, found)
        except supervisor.StackError as error:
            raise CommandError(str(error)) from error
        # A watcher of workers that was being started when its worker was killed sees that only once it is up.
        ending.wait_until(lambda: not drill_place.left_behind(place.workdir), GRACE_SECONDS)
        found.failures += drill_place.left_behind(place.workdir)
        found.failures += drill_place.still_listening(place)
    found.run["seconds"] = round(time.monotonic() - begun)
    return found


def _run(
    place: drill_place.DrillPlace,
    drills: Sequence[Drill],
    options: dict[str, Any],
    found: report.Report,
) -> None:
    judged = []
    for drill in drills:
        if missing := drill.needs - place.own_servers:
            found.left_out[drill.name] = f"not here: {', '.join(sorted(missing))}"
            say(f"{drill.name}: left out, {found.left_out[drill.name]}")
            continue
        judged.append(runner.perform(place, drill, jobs=options["jobs"], seed=options["seed"]))
        found.results.append(judged[-1].result)
    if judged:
        runner.judge_again(place, judged)


@contextmanager
def _place(
    ending: processes.Ending, logs_in: Path | None, kind: type[drill_place.DrillPlace]
) -> Iterator[drill_place.DrillPlace]:
    with ExitStack() as undo:
        env = {**os.environ, **kind.env}
        stack = supervisor.Stack(env, demo.new_directory(logs_in), ending=ending)
        undo.callback(stack.stop_all, GRACE_SECONDS)
        stack.start()
        place = kind(stack, ending.wait_until, say)
        undo.callback(place.close)
        place.make_whole()
        yield place


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def finish(
    command: BaseCommand,
    found: report.Report,
    options: dict[str, Any],
    name: str,
    markdown: Callable[[report.Report, Sequence[str], str], str] = report.markdown,
) -> None:
    """Write what was asked for; exit status 1 unless everything passed."""
    if options["out"] is not None:
        _write(found, options["out"], name, markdown)
    if options["as_json"]:
        command.stdout.write(json.dumps(found.as_json()))
    else:
        for line in report.summary(found):
            command.stdout.write(line)
    if not found.has_passed:
        raise SystemExit(1)


def _write(
    found: report.Report,
    out: Path,
    name: str,
    markdown: Callable[[report.Report, Sequence[str], str], str],
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    command = ["python", "manage.py", *sys.argv[1:]]
    (out / f"{name}.json").write_text(json.dumps(found.as_json(), indent=1) + "\n")
    (out / f"{name}.svg").write_text(report.svg(found.results))
    (out / f"{name}.md").write_text(markdown(found, [" ".join(command)], name))


def _about(options: dict[str, Any]) -> dict[str, Any]:
    return {
        "commit": commit(),
        "seed": options["seed"],
        "jobs of each drill": options["jobs"],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} CPUs, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}",
        "settings": ", ".join(
            f"{n}={v}" for n, v in drill_place.PERIODS.items() if "_SECONDS" in n
        ),
    }

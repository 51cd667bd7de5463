"""`manage.py demo`: six scenes on a whole stack, a replay of real bookings under faults, and the
provider's books against ours at the end.

Kept here: exit status 0 means that every scene was as it should be and the books agree, and nothing
else does; whichever way it ends, no process and no directory stays.
"""

import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, override

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from rich.console import Console

from config import guardian, processes, supervisor
from config.demo import records, replay, report, scenes, screens, stage
from recovery import clients

GRACE_SECONDS = 6.0  # longer than any call on the stage may take


class Command(BaseCommand):
    help = "Show what Amends does: six scenes, 300 real bookings under faults, and the books."
    requires_system_checks: list[str] = []

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--json", action="store_true", dest="as_json", help="one JSON object on stdout"
        )
        parser.add_argument(
            "--logs", type=Path, metavar="DIRECTORY", help="a new directory to leave the logs in"
        )

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        begun = time.monotonic() - _age()
        console = Console(stderr=options["as_json"])
        with ExitStack() as undo:
            ending = undo.enter_context(processes.Ending())
            undo.callback(connection.close)
            screen = _screen(undo, console, as_json=options["as_json"])
            try:
                logs = new_directory(options["logs"])
                stack = supervisor.Stack(stage.environment(), logs, ending=ending)
                result = _perform(stack, ending, screen, console, begun)
            except (supervisor.StackError, stage.StageError, replay.RejectedError) as error:
                raise CommandError(str(error)) from error
        result.seconds = time.monotonic() - begun
        if options["as_json"]:
            self.stdout.write(json.dumps(result.as_json()))
        if not result.is_good:
            raise SystemExit(1)


def _perform(
    stack: supervisor.Stack,
    ending: processes.Ending,
    screen: screens.Screen,
    console: Console,
    begun: float,
) -> report.Result:
    """All of it, from the first process to the last; the stack is gone when this returns."""
    with ExitStack() as undo:
        undo.callback(stack.stop_all, GRACE_SECONDS)
        screen.say("starting the API, the workers, beat and the stand-in provider ...")
        stack.start()
        screen.say("loading the hotel ...")
        stays, tokens = stage.open_hotel(replay.BOOKINGS + scenes.STAYS)
        played = stage.Stage(
            stack=stack,
            ending=ending,
            api=undo.enter_context(clients.Api(stack.api_url)),
            sandbox=undo.enter_context(clients.Sandbox(stack.sandbox_url)),
            screen=screen,
            stays=stays,
            tokens=tokens,
            rooms_before=records.read_taken(),
        )
        result = _play(played, begun)
        report.show(console, result)
        report.show_next(console, stack.api_url, stays[-1])
    return result


def _play(played: stage.Stage, begun: float) -> report.Result:
    result = report.Result()
    for number, scene in enumerate(scenes.SCENES):
        result.scenes[scene.name] = scenes.perform(played, number)
        result.first_booking_s = result.first_booking_s or time.monotonic() - begun
    played.screen.open_scene(replay.TITLE, replay.DONE)
    result.outcomes = replay.run(played)
    result.comparison = report.compare(played)
    result.killed_workers = played.killed_workers
    played.screen.close_scene(result.comparison.differences[:1], replay.WHY)
    return result


def new_directory(wanted: Path | None) -> Path | None:
    """Made here, so that the sandbox cannot meet an earlier run's books in it."""
    if wanted is not None:
        try:
            wanted.mkdir(mode=0o700)
        except OSError as error:
            raise CommandError(f"--logs: cannot make {wanted}: {error.strerror}") from error
    return wanted and wanted.resolve()


def _screen(undo: ExitStack, console: Console, *, as_json: bool) -> screens.Screen:
    if as_json or not console.is_terminal:
        return screens.PlainScreen(sys.stderr)
    live = screens.LiveScreen(console)
    undo.callback(live.stop)
    return live


def _age() -> float:
    """Seconds since this process began, embedded servers included; 0 where the system does not tell."""
    ticks = guardian.start_time(os.getpid())
    if not ticks:
        return 0.0
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
    return max(0.0, age)

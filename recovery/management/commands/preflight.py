"""`manage.py preflight`: whether this build may be deployed onto what is in flight, and whether one may go back.

Exit status: 0 when every answer is yes, 1 when one is no, 2 when it cannot be told: a file that is no
manifest, a database that cannot be asked.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, override

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from ledger import selectors
from ledger.selectors import Kind
from recovery import preflight
from recovery.preflight import Answer

NO, CANNOT_TELL = 1, 2


class Command(BaseCommand):
    help = "Jobs in flight by version and checkpoint format; may this build be deployed, may one go back."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--against",
            metavar="FILE",
            type=Path,
            help="manifest (--json) of the build to go back to",
        )
        parser.add_argument("--json", action="store_true", dest="as_json")

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            kinds, answers = selectors.in_flight(), _answers(options["against"])
        except preflight.BadManifest as error:
            raise CommandError(f"cannot tell: {error}", returncode=CANNOT_TELL) from None
        except Error as error:
            what = f"cannot tell: the database cannot be asked: {error}"
            raise CommandError(what, returncode=CANNOT_TELL) from None
        self.stdout.write(_json(kinds, answers) if options["as_json"] else _text(kinds, answers))
        if not all(answer.is_yes for answer in answers):
            count = sum(len(answer.obstacles) for answer in answers)
            raise CommandError(f"no: {count} in the way", returncode=NO)


def _answers(against: Path | None) -> list[Answer]:
    """With a file, the build to go back to comes second."""
    other = preflight.load(against) if against else None
    back = [preflight.may_go_back(other)] if other is not None else []
    return [preflight.may_deploy(), *back]


def _json(kinds: list[Kind], answers: list[Answer]) -> str:
    told = {
        "in_flight": [asdict(kind) for kind in kinds],
        "answers": [{"yes": answer.is_yes, **asdict(answer)} for answer in answers],
    }
    return json.dumps(told, indent=2)


def _text(kinds: list[Kind], answers: list[Answer]) -> str:
    lines = [
        f"{k.jobs} in flight of {k.saga} version {k.version}, checkpoint format {k.checkpoint_format};"
        f" steps begun: {', '.join(f'{step} {n}' for step, n in k.steps.items()) or 'none'}"
        for k in kinds
    ]
    for answer in answers:
        lines.append(f"{answer.question}: {'yes' if answer.is_yes else 'no'}")
        lines += [f"    {obstacle.what}{_jobs(obstacle)}" for obstacle in answer.obstacles]
        lines += [f"    note: {note}" for note in answer.notes]
    return "\n".join(lines or ["nothing is in flight"])


def _jobs(obstacle: preflight.Obstacle) -> str:
    if not obstacle.jobs:
        return ""
    more = ", ..." if obstacle.jobs > len(obstacle.ids) else ""
    return f"; {obstacle.jobs} jobs in flight: {', '.join(obstacle.ids)}{more}"

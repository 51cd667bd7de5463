"""`manage.py resolve JOB --as ACT --by USER --reason ...`: a person's act on a parked job, from a terminal.

The same functions, guards and staff log as in the admin. What is refused exits with 1 and one sentence.
"""

import json
from typing import Any, override
from uuid import UUID

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from ledger import acts, resolutions
from ledger.management.operator import OperatorCommand
from ledger.operations import Key
from ledger.saga import Direction

EVIDENCE = frozenset({"ref", "data", "note"})


class Command(OperatorCommand):
    help = "Act on a parked job: ask, retry, state what happened, compensate, close, take, release, note."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job", type=UUID)
        parser.add_argument("--as", dest="act", required=True, choices=list(acts.VERBS))
        parser.add_argument("--by", required=True, help="your user name: active staff with leave")
        parser.add_argument(
            "--reason", required=True, help=f"at least {acts.REASON_MIN} characters"
        )
        parser.add_argument("--operation", help="STEP:DIRECTION; default: the one it is parked for")
        parser.add_argument(
            "--evidence", default="", help='words, or JSON: {"ref": "re_1", "data": {}, "note": ""}'
        )
        parser.add_argument("--json", action="store_true", dest="as_json")

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        by = User.objects.filter(username=options["by"]).first()
        if by is None:
            raise CommandError(f"there is no user {options['by']!r}")
        asked = acts.Asked(
            act=options["act"],
            by=by.get_username(),
            reason=options["reason"],
            operation=_operation(options["operation"]),
            evidence=_evidence(options["evidence"]),
        )
        try:
            done = resolutions.act(options["job"], asked, by=by)
        except acts.ActRefused as refused:
            raise CommandError(str(refused)) from refused
        self._say(options["job"], done, asked, as_json=options["as_json"])

    def _say(
        self, job: UUID, done: resolutions.Resolved, asked: acts.Asked, *, as_json: bool
    ) -> None:
        if as_json:
            found = {"job": str(job), "act": done.act, "operation": done.operation}
            more = {"by": asked.by, "state": str(done.state), "at": done.at.isoformat()}
            self.stdout.write(json.dumps({**found, **more}))
        else:
            what = " ".join(filter(None, (done.act, done.operation)))
            self.stdout.write(f"{job}: {what} by {asked.by}; the job is {done.state}")


def _operation(text: str | None) -> Key | None:
    if not text:
        return None
    step, _, direction = text.rpartition(":")
    if not step or direction not in list(Direction):
        raise CommandError(f"--operation: {text!r} is not STEP:forward or STEP:backward")
    return step, Direction(direction)


def _evidence(text: str) -> dict[str, Any]:
    """Words are a note; a JSON object says its members, and no others."""
    if not text.strip():
        return {}
    try:
        given = json.loads(text)
    except ValueError:
        return {"note": text}
    if not isinstance(given, dict):
        return {"note": text}
    if not set(given) <= EVIDENCE or not isinstance(given.get("data", {}), dict):
        raise CommandError("--evidence: a JSON object has ref, data (an object) and note only")
    return given

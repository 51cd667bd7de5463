"""`manage.py restart`: after an outage, make stranded jobs runnable now and say what comes next. It runs none.

Exit status: 0 when every job named goes on or has ended, 1 when one needs a person, or is no job's id.
"""

import json
from dataclasses import asdict
from typing import Any, override
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from ledger import selectors
from ledger.management.operator import OperatorCommand
from recovery import restart
from recovery.restart import Restarted, Told


class Command(OperatorCommand):
    roles = ("owner", "worker")
    help = "Take back leases that have ended, ring the lanes, and say per job what comes next."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("jobs", metavar="JOB", nargs="*", help="ids of jobs")
        parser.add_argument(
            "--all-stalled",
            action="store_true",
            help="every job that could go on and that nobody drives",
        )
        parser.add_argument("--json", action="store_true", dest="as_json")

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        if bool(options["jobs"]) == options["all_stalled"]:
            raise CommandError("name at least one JOB, or else give --all-stalled")
        named = options["jobs"]
        done = restart.restart(_known(named)) if named else restart.restart_stalled()
        as_json = options["as_json"]
        self.stdout.write(json.dumps(asdict(done), default=str) if as_json else _text(done))
        blocked = sum(not told.goes_on for told in done.jobs)
        if blocked:
            raise CommandError(f"{blocked} of these jobs cannot go on without a person")


def _known(texts: list[str]) -> list[UUID]:
    """The ids, if each is a job's; nothing is done for the others either when one is not."""
    try:
        ids = list(dict.fromkeys(UUID(text) for text in texts))
    except ValueError:
        raise CommandError("a JOB is named by its id, a UUID") from None
    unknown = set(ids) - {job.id for job in selectors.whereabouts(ids)}
    if unknown:
        raise CommandError(f"no such job: {', '.join(sorted(map(str, unknown)))}")
    return ids


def _settled(job: Told) -> str:
    """What the last checkpoint says."""
    return ", ".join(f"{name} {outcome}" for name, outcome in job.checkpoint.items()) or "nothing"


def _text(done: Restarted) -> str:
    lines = [
        f"{job.job}  {job.found}; now {job.state}\n    settled: {_settled(job)}\n    next: {job.next}"
        for job in done.jobs
    ]
    if done.is_cut:
        lines.append(f"... and more: the first {len(done.jobs)} are listed")
    counts = (
        f"{done.reclaimed} leases taken back, {done.promoted} jobs ranked, {done.rung} lanes rung"
    )
    return "\n".join([*lines, counts])

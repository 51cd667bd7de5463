"""`manage.py invariants`: what must hold, asked of the database and, with --books, of the providers."""

import json
from datetime import UTC, datetime
from typing import Any, override

from django.core.management.base import CommandError, CommandParser

from ledger.management import arguments
from ledger.management.operator import OperatorCommand
from recovery.invariants import books, check

SECONDS_MAX = 86_400.0


def seconds(text: str) -> float:
    """Over zero, which would be no limit, and up to a day."""
    return arguments.number(text, 0.001, SECONDS_MAX)


class Command(OperatorCommand):
    help = "Named queries that must return no row. Exits 1 on any row, and where one could not be decided."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json")
        parser.add_argument(
            "--seconds", type=seconds, default=check.SECONDS_MAX, help="for each query"
        )
        text = "also ask the providers about so many settled operations, newest first"
        parser.add_argument(
            "--books",
            type=arguments.count,
            nargs="?",
            const=books.OPERATIONS_MAX,
            default=0,
            help=text,
        )
        parser.add_argument(
            "--since", help="with --books: settled since this ISO 8601 date or time (UTC)"
        )

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        findings = list(check.run(seconds=options["seconds"]))
        if options["books"]:
            findings.append(books.compare(options["books"], since=_since(options["since"])))
        broken = [finding.id for finding in findings if not finding.is_ok()]
        if options["as_json"]:
            found = [finding.as_json() for finding in findings]
            self.stdout.write(json.dumps({"invariants": found, "ok": not broken}))
        else:
            self.stdout.write("\n".join(_row(finding) for finding in findings))
        if broken:
            raise CommandError(f"broken or undecided: {', '.join(broken)}")


def _row(finding: check.Finding) -> str:
    what = "undecided" if finding.is_undecided else f"{finding.violations} rows"
    ids = "".join(f"\n        {id_}" for id_ in finding.ids)
    return f"{finding.id:<5}{'holds' if finding.is_ok() else what:<12}{finding.statement}{ids}"


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--since: {text!r} is no ISO 8601 date or time") from None
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)

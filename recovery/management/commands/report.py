"""`manage.py report`: where every job stands, with its money, as the journal proves it."""

import json
from datetime import UTC, datetime
from typing import Any, override
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from ledger import selectors
from ledger.management.operator import OperatorCommand
from recovery import report


class Command(OperatorCommand):
    roles = ("owner", "worker")
    help = "Every job in exactly one class, with counts and money, derived from the journal."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json")
        parser.add_argument("--since", help="jobs accepted since this ISO 8601 date or time (UTC)")
        parser.add_argument("--tenant", help="jobs of this tenant only, by name")

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        found = selectors.report(since=_since(options["since"]), tenant=_tenant(options["tenant"]))
        as_json = options["as_json"]
        self.stdout.write(json.dumps(report.as_json(found)) if as_json else report.as_text(found))


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise CommandError(
            f"--since: {text!r} is no ISO 8601 date or time, such as 2026-01-31 or 2026-01-31T08:00Z"
        ) from None


def _tenant(name: str | None) -> UUID | None:
    if name is None:
        return None
    tenant = selectors.tenant_id(name)
    if tenant is None:
        raise CommandError(f"--tenant: there is no tenant of the name {name!r}")
    return tenant

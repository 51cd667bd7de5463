"""`manage.py provider [NAME]`: how a provider may be called. What is set holds for the whole fleet from the next permit on;
jobs that were put off before look again at once.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, override

from django.core.management.base import CommandError, CommandParser

from ledger import models, permits, sql
from ledger.fleet import RATE_MAX, RATE_MIN
from ledger.management import arguments
from ledger.management.operator import OperatorCommand

UNSET = object()
NAME_MAX = 100  # the column's
SHARE_MIN = 0.01


def rate_or_none(text: str) -> float | None:
    """Calls per second; `none` takes the limit away."""
    return None if text == "none" else arguments.number(text, RATE_MIN, RATE_MAX)


def share(text: str) -> float:
    """Of the rate: neither lane is left without."""
    return arguments.number(text, SHARE_MIN, 1 - SHARE_MIN)


class Command(OperatorCommand):
    roles = ("owner", "worker")
    help = "Show providers, or set the limits of one: rate, compensations' share of it, concurrency, pause."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", default="")
        parser.add_argument(
            "--rate", type=rate_or_none, default=UNSET, help="calls per second, or `none`"
        )
        parser.add_argument(
            "--compensation-share",
            type=share,
            default=UNSET,
            help=f"the compensation lane's own part of it, {SHARE_MIN:g} to {1 - SHARE_MIN:g}",
        )
        parser.add_argument(
            "--concurrency",
            type=arguments.count_or_none,
            default=UNSET,
            help="calls at once, or `none`",
        )
        pause = parser.add_mutually_exclusive_group()
        pause.add_argument("--pause", dest="paused", action="store_true", default=UNSET)
        pause.add_argument("--resume", dest="paused", action="store_false", default=UNSET)
        parser.add_argument("--json", action="store_true", help="a list of objects")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        given = {
            "rate_per_second": options["rate"],
            "compensation_share": options["compensation_share"],
            "concurrency": options["concurrency"],
            "paused": options["paused"],
        }
        name, changes = options["name"], {k: v for k, v in given.items() if v is not UNSET}
        if (changes and not name) or len(name) > NAME_MAX:
            raise CommandError(f"limits are a provider's: name it, in up to {NAME_MAX} characters")
        if changes:
            permits.limit(name, changes)
        rows = models.Provider.objects.order_by("name")
        found = list((rows.filter(name=name) if name else rows).values())
        if name and not found:
            raise CommandError(f"provider {name} has no limits and no row")
        self.stdout.write(json.dumps(found, default=str) if options["json"] else _in_words(found))


def _in_words(rows: Sequence[Any]) -> str:
    now: datetime = sql.fetch("SELECT ledger_now()")[0][0]
    return "\n".join(_line(row, now) for row in rows)


def _line(row: Any, now: datetime) -> str:
    rate = f"{row['rate_per_second']:g}/s" if row["rate_per_second"] else "no rate"
    at_once = f"{row['concurrency']} at once" if row["concurrency"] else "any number at once"
    told = [rate, f"compensations {row['compensation_share']:g} of it", at_once]
    if row["paused"]:
        told.append("paused")
    if row["opened"]:
        told.append(f"circuit open until {row['open_until']:%H:%M:%S}, {row['failures']} failures")
    if row["throttled_until"] and row["throttled_until"] > now:
        told.append(f"throttled until {row['throttled_until']:%Y-%m-%d %H:%M:%S}")
    return f"{row['name']}: {', '.join(told)}"

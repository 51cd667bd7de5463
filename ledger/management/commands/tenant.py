"""`manage.py tenant NAME`: a tenant's weight in dispatch, and the cap on its running jobs, from the next promotion on.
Without a name: who books and has it undone again, over and over.
"""

from typing import Any, override

from django.core.management.base import CommandError, CommandParser

from ledger import models, selectors
from ledger.management import arguments
from ledger.management.operator import OperatorCommand


class Command(OperatorCommand):
    roles = ("owner", "worker")
    help = "Show or set a tenant's weight and cap."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", help="without: who had the most jobs end undone")
        parser.add_argument(
            "--weight", type=arguments.count, help="its share, beside those of the others"
        )
        parser.add_argument(
            "--cap", type=arguments.count_or_none, default=0, help="running jobs, or `none`"
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        if options["name"] is None:
            self._undone(is_asked_more=bool(options["weight"] or options["cap"] != 0))
            return
        changes = {"weight": options["weight"]} if options["weight"] else {}
        if options["cap"] != 0:
            changes["running_cap"] = options["cap"]
        tenants = models.Tenant.objects.filter(name=options["name"])
        if not (tenants.update(**changes) if changes else tenants.exists()):
            raise CommandError(f"there is no tenant {options['name']}")
        tenant = tenants.get()
        self.stdout.write(
            f"{tenant.name}: weight {tenant.weight}, cap {tenant.running_cap or 'none'}"
        )

    def _undone(self, *, is_asked_more: bool) -> None:
        if is_asked_more:
            raise CommandError("whose weight or cap? give the tenant's name")
        found = selectors.undone_recently()
        minutes = selectors.RECENT_SECONDS // 60
        for name, count in found:
            self.stdout.write(f"{name}: {count} undone in the last {minutes} minutes")
        if not found:
            self.stdout.write(f"no job ended undone in the last {minutes} minutes")

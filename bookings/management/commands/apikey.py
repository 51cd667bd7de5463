"""`manage.py apikey create|list|revoke`: the API keys of tenants. A key is printed once, and stored as a hash."""

import json
from datetime import timedelta
from typing import Any, override

from django.apps import apps
from django.core.management.base import CommandError, CommandParser
from django.db import transaction
from django.db.models import Case, When
from django.db.models.functions import Now

from bookings.models import ApiKey, all_scopes
from ledger.management.operator import OperatorCommand

TENANT_LENGTH = 100
NOTE_LENGTH = 50
MOST = 1_000_000  # of requests in a minute, and of days


class Command(OperatorCommand):
    help = "Create, list and revoke API keys of tenants."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        create = acts.add_parser("create", help="make a key; the tenant too, if it is new")
        create.add_argument("tenant")
        create.add_argument("--scopes", nargs="+", choices=all_scopes(), default=all_scopes())
        create.add_argument("--rate", type=int, help="requests in any minute; left out: as for all")
        create.add_argument("--days", type=int, help="until it expires; left out: never")
        create.add_argument("--name", default="manage.py", help="a note, at most 50 characters")
        create.add_argument("--json", action="store_true", dest="as_json")
        listing = acts.add_parser("list", help="every key, without its secret")
        listing.add_argument("--json", action="store_true", dest="as_json")
        revoke = acts.add_parser("revoke", help="end a key for good; takes effect within seconds")
        revoke.add_argument("prefix")

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        match options["act"]:
            case "create":
                self._create(options)
            case "list":
                self._list(as_json=options["as_json"])
            case _:
                self._revoke(options["prefix"])

    def _create(self, options: dict[str, Any]) -> None:
        name = options["tenant"]
        if not name.strip() or len(name) > TENANT_LENGTH or not name.isprintable():
            raise CommandError(f"a tenant's name has 1 to {TENANT_LENGTH} printable characters")
        if not 1 <= len(options["name"]) <= NOTE_LENGTH:
            raise CommandError(f"--name: 1 to {NOTE_LENGTH} characters")
        for option in ("rate", "days"):
            if options[option] is not None and not 1 <= options[option] <= MOST:
                raise CommandError(f"--{option}: 1 to {MOST}")
        with transaction.atomic(durable=True):
            tenant, _ = apps.get_model("ledger", "Tenant").objects.get_or_create(name=name)
            scopes = sorted(set(options["scopes"]))
            row, key = ApiKey.objects.create_key(
                tenant=tenant, name=options["name"], scopes=scopes, rate_per_minute=options["rate"]
            )
            if days := options["days"]:
                ends = Now() + timedelta(days=days)
                ApiKey.objects.filter(pk=row.pk).update(expiry_date=ends)
        if options["as_json"]:
            found = {"tenant": name, "key": key, "prefix": row.prefix, "scopes": scopes}
            self.stdout.write(json.dumps(found))
        else:
            self.stdout.write(key)
            self.stderr.write(f"{name}: {', '.join(scopes)}. This key is not shown again.")

    def _list(self, *, as_json: bool) -> None:
        is_over = Case(When(expiry_date__lte=Now(), then=True), default=False)
        keys = ApiKey.objects.select_related("tenant").annotate(is_over=is_over)
        for key in keys.order_by("tenant__name", "created"):
            found = {
                "prefix": key.prefix,
                "tenant": key.tenant.name,
                "scopes": key.scopes,
                "rate_per_minute": key.rate_per_minute,
                "created": key.created.isoformat(),
                "last_used_at": key.last_used_at.isoformat() if key.last_used_at else None,
                "expires": key.expiry_date.isoformat() if key.expiry_date else None,
                "revoked": key.revoked,
            }
            if as_json:
                self.stdout.write(json.dumps(found))
            else:
                state = "revoked" if key.revoked else "expired" if key.is_over else "usable"
                self.stdout.write(
                    f"{key.prefix}  {state}  {key.tenant.name}  {' '.join(key.scopes)}"
                )

    def _revoke(self, prefix: str) -> None:
        if not ApiKey.objects.filter(prefix=prefix).update(revoked=True):
            raise CommandError(f"there is no key with the prefix {prefix}; see `apikey list`")
        self.stdout.write(f"{prefix} is revoked")

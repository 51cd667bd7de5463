"""`manage.py staff NAME --group GROUP`: a login for staff, who may do what their group may.

The pages themselves change nobody's rights: their database role cannot. A new person's password is made here and printed
once; the group of a known one is replaced.
"""

import secrets
from typing import Any, override

from django.contrib.auth.models import Group, User
from django.core.management.base import CommandError, CommandParser
from django.db import transaction

from ledger.management.operator import OperatorCommand


class Command(OperatorCommand):
    help = "Make a login for staff, or move one to another group."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--group", required=True, help="viewer, operator, supervisor or admin")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        groups = sorted(Group.objects.values_list("name", flat=True))
        if options["group"] not in groups:
            raise CommandError(f"no group {options['group']}; there are {', '.join(groups)}")
        with transaction.atomic(durable=True):
            person, is_new = User.objects.get_or_create(
                username=options["name"], defaults={"is_staff": True}
            )
            password = secrets.token_urlsafe(16)
            if is_new:
                person.set_password(password)
                person.save()
            person.groups.set([Group.objects.get(name=options["group"])])
        self.stdout.write(f"{person.username} is {options['group']}")
        if is_new:
            self.stdout.write(f"password, shown once: {password}")

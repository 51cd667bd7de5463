"""A command of staff's says as whom it may run. To the API's role the rows of no tenant are to be seen: an operator who asks
in its container would read that all is well, of nothing.
"""

from collections.abc import Sequence
from typing import Any, override

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError


class OperatorCommand(BaseCommand):
    """Runs as one of `roles` (what AMENDS_ROLE names), and as no other."""

    roles: Sequence[str] = ("owner",)

    @override
    def execute(self, *args: Any, **options: Any) -> str | None:
        if settings.ROLE not in self.roles:
            raise CommandError(
                f"AMENDS_ROLE is {settings.ROLE}, which does not see or may not do all of this:"
                f" run it as {' or '.join(self.roles)}"
            )
        return super().execute(*args, **options)

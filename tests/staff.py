"""People for tests: users in the groups that the migration makes, and what they ask for."""

from importlib import import_module
from typing import Any
from uuid import UUID

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User

from ledger import acts, models, resolutions
from ledger.saga import Direction

MIGRATION = "ledger.migrations.0003_resolutions"
REASON = "seen in the provider's own books"
BY_HAND = {"ref": "seen-by-hand"}


def member(name: str, group: str = "supervisor") -> User:
    """Active staff in one of the groups; a test that emptied the database has emptied those too."""
    import_module(MIGRATION).make_groups(apps, None)
    user, _ = User.objects.get_or_create(username=name, defaults={"is_staff": True})
    user.groups.add(Group.objects.get(name=group))
    return user


def asked(act: str, by: User, operation: str = "", **more: Any) -> acts.Asked:
    step, _, direction = operation.rpartition(":")
    key = (step, Direction(direction)) if operation else None
    return acts.Asked(
        **{
            "act": act,
            "by": by.get_username(),
            "reason": REASON,
            "operation": key,
            "evidence": {"note": "their books say so", **(BY_HAND if act == "done" else {})},
            **more,
        }
    )


def does(
    job: UUID, act: str, operation: str = "", *, by: User | None = None, **more: Any
) -> resolutions.Resolved:
    """The act of somebody who may do it all, on the job as it is now."""
    by = by or member("sam")
    return resolutions.act(job, asked(act, by, operation, **more), by=by)


def resolved(job: UUID) -> list[tuple[str, str, str]]:
    """(operation, act, by) in journal order."""
    rows = models.Resolution.objects.filter(job_id=job).order_by("id")
    return [(f"{r.step}:{r.direction}", r.act, r.decided_by) for r in rows]


def logged(job: UUID) -> list[tuple[str, str]]:
    """(who, what) in the staff log of this job."""
    entries = LogEntry.objects.filter(object_id=str(job)).order_by("id")
    return [(entry.user.get_username(), entry.change_message) for entry in entries]

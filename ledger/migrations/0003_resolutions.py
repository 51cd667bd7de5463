"""Acts of people: a permission per kind of act, the groups that hold them, and a money guard that believes a resolution.

The permissions are made here by hand: Django makes them after all migrations, and the groups need them now.
"""

from django.db import migrations

from ledger import guards

PERMISSIONS = (
    ("ask_provider", "Can ask a provider what became of an operation"),
    ("retry_compensation", "Can retry an operation under its own id"),
    ("compensate_job", "Can turn a job back"),
    ("take_job", "Can take, release and comment on a job"),
    ("resolve_unknown", "Can resolve an operation as done or not done"),
    ("force_close", "Can close a job as settled by hand, with a second person"),
)
VIEWER = ["view_job", "view_tenant", "view_submission"]
OPERATOR = [*VIEWER, "ask_provider", "retry_compensation", "compensate_job", "take_job"]
SUPERVISOR = [*OPERATOR, "resolve_unknown", "force_close"]
GROUPS = {"viewer": VIEWER, "operator": OPERATOR, "supervisor": SUPERVISOR, "admin": SUPERVISOR}


def make_groups(apps, _schema_editor):
    """Idempotent, and nothing is taken away from a group that somebody has added to."""
    content_types = apps.get_model("contenttypes", "ContentType").objects
    permissions = apps.get_model("auth", "Permission").objects
    names = {
        "view_job": "Can view job",
        "view_tenant": "Can view tenant",
        "view_submission": "Can view submission",
    }
    for codename, name in [*names.items(), *PERMISSIONS]:
        model = codename.removeprefix("view_") if codename in names else "job"
        content_type, _ = content_types.get_or_create(app_label="ledger", model=model)
        permissions.get_or_create(
            content_type=content_type, codename=codename, defaults={"name": name}
        )
    for name, codenames in GROUPS.items():
        group, _ = apps.get_model("auth", "Group").objects.get_or_create(name=name)
        group.permissions.add(
            *permissions.filter(content_type__app_label="ledger", codename__in=codenames)
        )


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0002_roles_and_guards"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [
        migrations.AlterModelOptions(name="job", options={"permissions": PERMISSIONS}),
        migrations.RunPython(make_groups, migrations.RunPython.noop),
        migrations.RunSQL(guards.MONEY_FUNCTION, migrations.RunSQL.noop),
    ]

"""Webhooks: endpoints, secrets and deliveries; who may do what with them; and the right of staff to send one again.

The API's role writes secrets and cannot read them. The permissions are made here by hand: Django makes them after all
migrations, and the groups need them now.
"""

import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.uuid
from django.db import migrations, models

GRANTS = [
    (
        "SELECT, INSERT, UPDATE (disabled_at, disabled_reason)",
        "bookings_webhookendpoint",
        "amends_api",
    ),
    (
        "SELECT (id, endpoint_id, created_at, ends_at), INSERT, UPDATE (ends_at), DELETE",
        "bookings_webhooksecret",
        "amends_api",
    ),
    (
        "SELECT, UPDATE (due_at, lease_until, term_from, delivered_at, given_up_at)",
        "bookings_webhookdelivery",
        "amends_api",
    ),
    (
        "SELECT, UPDATE (failures, succeeded_at, paused_until, disabled_at, disabled_reason)",
        "bookings_webhookendpoint",
        "amends_worker",
    ),
    ("SELECT", "bookings_webhooksecret", "amends_worker"),
    ("SELECT, INSERT, UPDATE", "bookings_webhookdelivery", "amends_worker"),
    ("SELECT, DELETE", "bookings_webhookdelivery", "amends_retention"),
]
MODELS = {"webhookendpoint": "Webhook endpoint", "webhookdelivery": "Webhook delivery"}
MAY_SEE = ("viewer", "operator", "supervisor", "admin")
MAY_REPLAY = MAY_SEE[1:]


def permit(apps, _schema_editor):
    """Idempotent, and nothing is taken away from a group that somebody has added to."""
    content_types = apps.get_model("contenttypes", "ContentType").objects
    permissions = apps.get_model("auth", "Permission").objects
    names = {f"view_{model}": f"Can view {name.lower()}" for model, name in MODELS.items()}
    names["replay_webhookdelivery"] = "Can send a webhook again"
    for codename, name in names.items():
        model = codename.partition("_")[2]
        content_type, _ = content_types.get_or_create(app_label="bookings", model=model)
        permission, _ = permissions.get_or_create(
            content_type=content_type, codename=codename, defaults={"name": name}
        )
        for group in MAY_REPLAY if codename.startswith("replay") else MAY_SEE:
            found, _ = apps.get_model("auth", "Group").objects.get_or_create(name=group)
            found.permissions.add(permission)


class Migration(migrations.Migration):
    dependencies = [
        ("bookings", "0005_key_rates"),
        ("ledger", "0007_events"),
    ]

    operations = [
        migrations.CreateModel(
            name="WebhookEndpoint",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        db_default=django.db.models.functions.uuid.UUID7(),
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("url", models.CharField(max_length=2000)),
                ("failures", models.PositiveIntegerField(db_default=0)),
                ("succeeded_at", models.DateTimeField(null=True)),
                ("paused_until", models.DateTimeField(null=True)),
                ("disabled_at", models.DateTimeField(null=True)),
                ("disabled_reason", models.CharField(db_default="", max_length=32)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="ledger.tenant",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("type", models.CharField(max_length=64)),
                ("body", models.TextField()),
                ("attempts", models.PositiveIntegerField(db_default=0)),
                ("due_at", models.DateTimeField(null=True)),
                ("lease_until", models.DateTimeField(null=True)),
                ("tries", models.JSONField(db_default=[])),
                (
                    "term_from",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("delivered_at", models.DateTimeField(null=True)),
                ("given_up_at", models.DateTimeField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "booking",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="bookings.booking",
                    ),
                ),
                (
                    "event",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="ledger.event",
                    ),
                ),
                (
                    "endpoint",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="bookings.webhookendpoint",
                    ),
                ),
            ],
            options={
                "permissions": [("replay_webhookdelivery", "Can send a webhook again")],
            },
        ),
        migrations.CreateModel(
            name="WebhookSecret",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("secret", models.CharField(max_length=64)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("ends_at", models.DateTimeField(null=True)),
                (
                    "endpoint",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="secrets",
                        to="bookings.webhookendpoint",
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="webhookendpoint",
            index=models.Index(fields=["tenant", "id"], name="bookings_webhookendpoint_own"),
        ),
        migrations.AddConstraint(
            model_name="webhookendpoint",
            constraint=models.UniqueConstraint(
                condition=models.Q(("disabled_at__isnull", True)),
                fields=("tenant", "url"),
                name="bookings_webhookendpoint_url_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookendpoint",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("disabled_at__isnull", True), ("disabled_reason", "")),
                    models.Q(
                        ("disabled_at__isnull", False),
                        models.Q(("disabled_reason", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="bookings_webhookendpoint_reason_iff_disabled",
            ),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)),
                fields=["endpoint", "due_at"],
                name="bookings_webhookdelivery_due",
            ),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(
                condition=models.Q(("lease_until__isnull", False)),
                fields=["endpoint"],
                name="bookings_webhookdelivery_out",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.UniqueConstraint(
                fields=("endpoint", "event"), name="bookings_webhookdelivery_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="webhookdelivery",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("delivered_at__isnull", True),
                        ("due_at__isnull", False),
                        ("given_up_at__isnull", True),
                    ),
                    models.Q(
                        ("delivered_at__isnull", False),
                        ("due_at__isnull", True),
                        ("given_up_at__isnull", True),
                    ),
                    models.Q(
                        ("delivered_at__isnull", True),
                        ("due_at__isnull", True),
                        ("given_up_at__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="bookings_webhookdelivery_due_iff_open",
            ),
        ),
        migrations.AddConstraint(
            model_name="webhooksecret",
            constraint=models.UniqueConstraint(
                condition=models.Q(("ends_at__isnull", True)),
                fields=("endpoint",),
                name="bookings_webhooksecret_one_without_end",
            ),
        ),
        *(
            migrations.RunSQL(
                sql=f"GRANT {privileges} ON {table} TO {role}",
                reverse_sql=f"REVOKE ALL ON {table} FROM {role}",
            )
            for privileges, table, role in GRANTS
        ),
        migrations.RunPython(permit, migrations.RunPython.noop),
    ]

"""Events of tenants that announce: the table, the trigger that writes it, and a retention that takes it along.

`retain` is replaced after the table is there; a process of the build before knows neither, and loses nothing.
"""

import django.db.models.deletion
import django.db.models.functions.uuid
from django.db import migrations, models

import ledger.fleet
from ledger import guards


class Migration(migrations.Migration):
    dependencies = [("ledger", "0006_permits")]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="announces",
            field=models.BooleanField(db_default=False),
        ),
        migrations.CreateModel(
            name="Event",
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
                ("state", models.CharField(max_length=16)),
                ("direction", models.CharField(max_length=8)),
                ("seq", models.BigIntegerField()),
                ("at", models.DateTimeField(db_default=ledger.fleet.LedgerNow())),
                ("pending", models.BooleanField(db_default=True)),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="ledger.job",
                    ),
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
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("pending", True)),
                        fields=["id"],
                        name="ledger_event_pending",
                    )
                ],
            },
        ),
        migrations.RunSQL(guards.EVENTS, "DROP FUNCTION ledger_tell() CASCADE"),
        migrations.RunSQL(guards.RETENTION_FUNCTION, migrations.RunSQL.noop),
    ]

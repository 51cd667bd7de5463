"""What a tenant's list of bookings walks. Made beside running processes, without holding up a write."""

import django.db.models.deletion
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

OF_FOREIGN_KEY = (
    "bookings_booking_tenant_id_86cf6436"  # as Django names it, from its table and column
)


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("bookings", "0003_when_held")]

    operations = [
        AddIndexConcurrently(
            model_name="booking",
            index=models.Index(fields=["tenant", "id"], name="bookings_booking_of_tenant"),
        ),
        AddIndexConcurrently(
            model_name="booking",
            index=models.Index(
                condition=models.Q(("client_reference", ""), _negated=True),
                fields=["tenant", "client_reference", "id"],
                name="bookings_booking_reference",
            ),
        ),
        # By itself Django would make the foreign key anew, and check every row under a lock that all bookings wait for.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(
                    model_name="booking",
                    name="tenant",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="ledger.tenant",
                    ),
                )
            ],
            database_operations=[
                migrations.RunSQL(
                    f"DROP INDEX CONCURRENTLY {OF_FOREIGN_KEY}",
                    f"CREATE INDEX CONCURRENTLY {OF_FOREIGN_KEY} ON bookings_booking (tenant_id)",
                )
            ],
        ),
    ]

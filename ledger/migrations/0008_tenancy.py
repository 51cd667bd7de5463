"""Row-level security on what belongs to a tenant. A build that names no tenant in its statements serves nothing after it."""

from django.db import migrations

from ledger import tenancy


class Migration(migrations.Migration):
    dependencies = [("ledger", "0007_events")]

    operations = [
        migrations.RunSQL(
            tenancy.WALL.format(table=table, condition=condition),
            tenancy.NO_WALL.format(table=table),
        )
        for table, condition in tenancy.TABLES.items()
    ]

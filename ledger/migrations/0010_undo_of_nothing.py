"""An undo is for more than nothing: the function of the money guard, again."""

from django.db import migrations

from ledger import guards


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0009_submit"),
    ]

    operations = [
        migrations.RunSQL(guards.MONEY_FUNCTION, migrations.RunSQL.noop),
    ]

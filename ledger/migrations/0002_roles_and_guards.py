"""The database's own guards and roles. The edges are written out: a migration is history, `states.TRANSITIONS` is now."""

from django.db import migrations

from ledger import guards

EDGES = [
    ("closed", "parked"),
    ("compensated", "parked"),
    ("confirmed", "parked"),
    ("parked", "closed"),
    ("parked", "waiting"),
    ("queued", "parked"),
    ("queued", "running"),
    ("queued", "waiting"),
    ("refused", "parked"),
    ("running", "compensated"),
    ("running", "confirmed"),
    ("running", "parked"),
    ("running", "queued"),
    ("running", "refused"),
    ("running", "waiting"),
    ("waiting", "parked"),
    ("waiting", "queued"),
]


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_initial")]

    operations = [
        migrations.RunSQL(guards.ROLES, migrations.RunSQL.noop),
        migrations.RunSQL(guards.job_guard(EDGES), "DROP FUNCTION ledger_job_guard() CASCADE"),
        migrations.RunSQL(
            guards.JOB_TRIGGERS,
            "DROP FUNCTION ledger_only_retention() CASCADE; DROP FUNCTION ledger_refuse() CASCADE;",
        ),
        migrations.RunSQL(guards.JOURNAL_GUARD, "DROP FUNCTION ledger_journal_guard() CASCADE"),
        migrations.RunSQL(guards.journal_triggers(), migrations.RunSQL.noop),
        migrations.RunSQL(guards.MONEY_GUARD, "DROP FUNCTION ledger_money_guard() CASCADE"),
        migrations.RunSQL(guards.GRANTS, migrations.RunSQL.noop),
        migrations.RunSQL(guards.RETENTION, "DROP FUNCTION ledger_retain(uuid[], interval)"),
        migrations.RunSQL(guards.LANES, "DELETE FROM ledger_laneclock"),
    ]

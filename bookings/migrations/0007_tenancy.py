"""Row-level security on bookings and webhooks. API keys are left out: a key is looked up before its tenant is known."""

from django.db import migrations

from ledger import tenancy

OF_ENDPOINT = "(SELECT true FROM bookings_webhookendpoint e WHERE e.id = endpoint_id)"
TABLES = {
    "bookings_booking": tenancy.OF_TENANT,
    "bookings_webhookendpoint": tenancy.OF_TENANT,
    "bookings_webhooksecret": OF_ENDPOINT,
    "bookings_webhookdelivery": OF_ENDPOINT,
}


class Migration(migrations.Migration):
    dependencies = [("bookings", "0006_webhooks"), ("ledger", "0008_tenancy")]

    operations = [
        migrations.RunSQL(
            tenancy.WALL.format(table=table, condition=condition),
            tenancy.NO_WALL.format(table=table),
        )
        for table, condition in TABLES.items()
    ]

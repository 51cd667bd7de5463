"""How often each key may ask, where that is not what all may."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("bookings", "0004_lists")]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="rate_per_minute",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddConstraint(
            model_name="apikey",
            constraint=models.CheckConstraint(
                condition=models.Q(("rate_per_minute__gte", 1)),
                name="bookings_apikey_rate_is_positive",
            ),
        ),
    ]

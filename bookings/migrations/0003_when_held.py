"""A room type's policy towards holds, and an index that tells who keeps a night."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("bookings", "0002_grants")]

    operations = [
        migrations.AddField(
            model_name="roomtype",
            name="when_held",
            field=models.CharField(
                choices=[("fail", "fail"), ("wait", "wait")], db_default="fail", max_length=8
            ),
        ),
        migrations.AddConstraint(
            model_name="roomtype",
            constraint=models.CheckConstraint(
                condition=models.Q(("when_held__in", ["fail", "wait"])),
                name="bookings_roomtype_when_held_is_known",
            ),
        ),
        migrations.AddIndex(
            model_name="reservation",
            index=models.Index(
                condition=models.Q(("state__in", ["held", "secured"])),
                fields=["room_type", "arrival"],
                name="bookings_reservation_living",
            ),
        ),
    ]

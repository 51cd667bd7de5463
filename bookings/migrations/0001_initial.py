"""The tables of the travel domain."""

import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.uuid
from django.db import migrations, models

import bookings.models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("ledger", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                (
                    "id",
                    models.CharField(
                        editable=False,
                        max_length=150,
                        primary_key=True,
                        serialize=False,
                        unique=True,
                    ),
                ),
                ("prefix", models.CharField(editable=False, max_length=8, unique=True)),
                ("hashed_key", models.CharField(editable=False, max_length=150)),
                (
                    "name",
                    models.CharField(
                        default=None,
                        help_text="A free-form name for the API key. Need not be unique. 50 characters max.",
                        max_length=50,
                    ),
                ),
                (
                    "revoked",
                    models.BooleanField(
                        blank=True,
                        default=False,
                        help_text="If the API key is revoked, clients cannot use it anymore. (This cannot be undone.)",
                    ),
                ),
                (
                    "expiry_date",
                    models.DateTimeField(
                        blank=True,
                        help_text="Once API key expires, clients cannot use it anymore.",
                        null=True,
                        verbose_name="Expires",
                    ),
                ),
                ("scopes", models.JSONField(default=bookings.models.all_scopes)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), db_index=True
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="api_keys",
                        to="ledger.tenant",
                    ),
                ),
            ],
            options={
                "verbose_name": "API key",
                "verbose_name_plural": "API keys",
                "ordering": ("-created",),
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Hotel",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("code", models.CharField(max_length=64, unique=True)),
                ("name", models.CharField(max_length=200)),
                ("timezone", models.CharField(max_length=64)),
                ("currency", models.CharField(max_length=3)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("currency__regex", "^[A-Z]{3}$")),
                        name="bookings_hotel_currency_is_iso",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RoomType",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("code", models.CharField(max_length=64)),
                (
                    "hotel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="room_types",
                        to="bookings.hotel",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="RoomNight",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "night",
                    models.DateField(
                        help_text="The date on which the night begins, in the hotel's calendar."
                    ),
                ),
                ("capacity", models.IntegerField()),
                ("taken", models.IntegerField(db_default=0)),
                (
                    "room_type",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="nights",
                        to="bookings.roomtype",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="RoomMonth",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("month", models.DateField(help_text="The first day of the month.")),
                ("rate_minor", models.BigIntegerField()),
                ("capacity", models.IntegerField()),
                (
                    "room_type",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="months",
                        to="bookings.roomtype",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Reservation",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("holder", models.CharField(max_length=200, unique=True)),
                ("arrival", models.DateField()),
                ("nights", models.IntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("held", "held"),
                            ("secured", "secured"),
                            ("released", "released"),
                            ("expired", "expired"),
                        ],
                        max_length=16,
                    ),
                ),
                ("expires_at", models.DateTimeField(null=True)),
                ("version", models.IntegerField(db_default=1)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "room_type",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="bookings.roomtype",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Booking",
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
                ("arrival", models.DateField()),
                ("nights", models.IntegerField()),
                ("guest", models.CharField(blank=True, max_length=200)),
                ("client_reference", models.CharField(blank=True, max_length=200)),
                ("amount_minor", models.BigIntegerField()),
                ("currency", models.CharField(max_length=3)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="booking",
                        to="ledger.job",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="ledger.tenant",
                    ),
                ),
                (
                    "hotel",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="bookings.hotel",
                    ),
                ),
                (
                    "room_type",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="bookings.roomtype",
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="roomtype",
            constraint=models.UniqueConstraint(
                fields=("hotel", "code"), name="bookings_roomtype_code_is_unique"
            ),
        ),
        migrations.AddConstraint(
            model_name="roomnight",
            constraint=models.UniqueConstraint(
                fields=("room_type", "night"), name="bookings_roomnight_night_is_unique"
            ),
        ),
        migrations.AddConstraint(
            model_name="roomnight",
            constraint=models.CheckConstraint(
                condition=models.Q(("taken__gte", 0), ("taken__lte", models.F("capacity"))),
                name="bookings_roomnight_taken_is_within_capacity",
            ),
        ),
        migrations.AddConstraint(
            model_name="roommonth",
            constraint=models.UniqueConstraint(
                fields=("room_type", "month"), name="bookings_roommonth_month_is_unique"
            ),
        ),
        migrations.AddConstraint(
            model_name="roommonth",
            constraint=models.CheckConstraint(
                condition=models.Q(("month__day", 1)),
                name="bookings_roommonth_month_starts_on_its_first",
            ),
        ),
        migrations.AddConstraint(
            model_name="roommonth",
            constraint=models.CheckConstraint(
                condition=models.Q(("rate_minor__gt", 0)),
                name="bookings_roommonth_rate_is_positive",
            ),
        ),
        migrations.AddConstraint(
            model_name="roommonth",
            constraint=models.CheckConstraint(
                condition=models.Q(("capacity__gte", 0)),
                name="bookings_roommonth_capacity_is_not_negative",
            ),
        ),
        migrations.AddIndex(
            model_name="reservation",
            index=models.Index(
                condition=models.Q(("state", "held")),
                fields=["expires_at", "id"],
                name="bookings_reservation_due",
            ),
        ),
        migrations.AddConstraint(
            model_name="reservation",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["held", "secured", "released", "expired"])),
                name="bookings_reservation_state_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="reservation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("expires_at__isnull", False), ("state", "held")),
                    models.Q(
                        models.Q(("state", "held"), _negated=True), ("expires_at__isnull", True)
                    ),
                    _connector="OR",
                ),
                name="bookings_reservation_expires_only_while_held",
            ),
        ),
        migrations.AddConstraint(
            model_name="reservation",
            constraint=models.CheckConstraint(
                condition=models.Q(("nights__gt", 0)),
                name="bookings_reservation_nights_are_positive",
            ),
        ),
        migrations.AddConstraint(
            model_name="booking",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount_minor__gt", 0)),
                name="bookings_booking_amount_is_positive",
            ),
        ),
        migrations.AddConstraint(
            model_name="booking",
            constraint=models.CheckConstraint(
                condition=models.Q(("currency__regex", "^[A-Z]{3}$")),
                name="bookings_booking_currency_is_iso",
            ),
        ),
        migrations.AddConstraint(
            model_name="booking",
            constraint=models.CheckConstraint(
                condition=models.Q(("nights__gt", 0)), name="bookings_booking_nights_are_positive"
            ),
        ),
    ]

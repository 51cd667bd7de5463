"""What the processes' database roles may do with the tables of bookings, and what staff need in order to log in."""

from django.db import migrations

# Privileges bind what a process can do whatever its code says: no process changes a
# booking, and only retention, with its job, removes one.
GRANTS = [
    (
        "SELECT",
        "bookings_hotel, bookings_roomtype, bookings_roommonth, bookings_roomnight, bookings_reservation, "
        "bookings_booking",
        "amends_api, amends_worker",
    ),
    ("INSERT", "bookings_booking", "amends_api"),
    ("SELECT, DELETE", "bookings_booking", "amends_retention"),
    ("SELECT, UPDATE (last_used_at)", "bookings_apikey", "amends_api"),
    ("UPDATE (taken)", "bookings_roomnight", "amends_worker"),
    ("INSERT, UPDATE (state, expires_at, version)", "bookings_reservation", "amends_worker"),
    (
        "SELECT",
        "auth_group, auth_permission, auth_group_permissions, auth_user_groups, auth_user_user_permissions, "
        "django_content_type",
        "amends_api",
    ),
    ("SELECT, UPDATE (last_login, password)", "auth_user", "amends_api"),
    ("SELECT, INSERT, UPDATE, DELETE", "django_session", "amends_api"),
    ("SELECT, INSERT", "django_admin_log", "amends_api"),
]


class Migration(migrations.Migration):
    dependencies = [
        ("bookings", "0001_initial"),
        ("ledger", "0002_roles_and_guards"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("sessions", "0001_initial"),
    ]

    operations = [
        migrations.RunSQL(
            sql=f"GRANT {privileges} ON {tables} TO {roles}",
            reverse_sql=f"REVOKE {privileges} ON {tables} FROM {roles}",
        )
        for privileges, tables, roles in GRANTS
    ]

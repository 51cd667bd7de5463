"""A module that asks the database while it is imported, as an app's `ready` might. A worker is told to import it, so that
its parent has a connection when the pool is forked; the session says so by its name.
"""

from django.db import connection

with connection.cursor() as cursor:
    cursor.execute("SET application_name = 'asked-early'")

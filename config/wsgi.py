"""The WSGI entry of the web process: the API's database role, and the Celery app that tickets are published through."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
os.environ.setdefault("AMENDS_ROLE", "api")

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()

import config.celery  # noqa: E402, F401

#!/usr/bin/env python3
"""Django's command line. Commands that run a whole stack get embedded servers first, before settings are read."""

import importlib
import os
import sys

from django.core.management import execute_from_command_line

from config import embedded


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ.setdefault("AMENDS_ROLE", "owner")
    embedded.ensure_for(sys.argv)
    importlib.import_module("config.celery")  # the current Celery app, for whoever publishes
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()

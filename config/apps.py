"""The project itself as a Django app, so that `manage.py` finds the commands that need the whole
stack.
"""

from typing import override

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    name = "config"
    label = "config"
    verbose_name = "Project"

    @override
    def ready(self) -> None:
        from django.contrib import admin

        from config import bench_saga, checks, drill_saga, staff_login

        admin.site.login_form = staff_login.LoginForm
        bench_saga.register()
        drill_saga.register()
        checks.register()

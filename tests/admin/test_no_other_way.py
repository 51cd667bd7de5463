"""Nothing on the pages of staff changes or removes a row of the ledger, except an act by somebody who may do it."""

from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.db import ProgrammingError, connection, transaction
from django.db.models import Model, ProtectedError
from django.test import Client, RequestFactory

from ledger import leases, models
from tests import claims, drives, sagas, staff
from tests.admin.conftest import Desk, Stuck, logged_in
from tests.conftest import Roles

OURS = [m for m in admin.site._registry if m._meta.app_label in ("ledger", "bookings", "auth")]
TABLES = [m._meta.db_table for m in apps.get_app_config("ledger").get_models()]
TABLES += ["auth_user", "django_admin_log"]


def everything(stuck: Stuck) -> tuple[Any, ...]:
    return (*claims.snapshot(stuck.job), LogEntry.objects.count())


@pytest.mark.parametrize("model", OURS, ids=lambda m: m._meta.label)
def test_a_superuser_may_neither_add_change_nor_delete(
    model: type[Model], rf: RequestFactory
) -> None:
    request = rf.get("/admin/")
    request.user = User(username="root", is_superuser=True, is_staff=True, is_active=True)
    page = admin.site._registry[model]
    assert not page.has_add_permission(request)
    assert not page.has_change_permission(request)
    assert not page.has_delete_permission(request)
    assert "delete_selected" not in page.get_actions(request)


def test_deleting_by_crafted_requests_as_a_superuser(stuck: Stuck, as_role: Roles) -> None:
    root = User.objects.create_superuser("root")
    client, before = Client(), everything(stuck)
    client.force_login(root)
    tenant = stuck.row.tenant_id
    with as_role("api"):
        for path in (
            f"ledger/job/{stuck.job}/delete/",
            f"ledger/tenant/{tenant}/delete/",
            f"auth/user/{root.pk}/delete/",
        ):
            assert client.post(f"/admin/{path}", {"post": "yes"}).status_code == 403, path
        bulk = {"action": "delete_selected", "_selected_action": str(stuck.job), "post": "yes"}
        client.post("/admin/ledger/job/?needs=all", bulk)  # there is no such action: a plain list
    assert everything(stuck) == before
    assert User.objects.filter(pk=root.pk).exists()


def test_the_ledger_protects_itself_from_code_too(stuck: Stuck, as_role: Roles) -> None:
    before = everything(stuck)
    with pytest.raises(ProtectedError):
        stuck.row.tenant.delete()
    with as_role("api"):
        for table in TABLES:
            with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
                connection.cursor().execute(f"DELETE FROM {table}")  # noqa: S608  names of models
    assert everything(stuck) == before


def test_saving_a_form_that_was_opened_while_the_job_ran_saves_nothing(desk: Desk) -> None:
    """The form of a job that was running, sent after the worker has finished it."""
    with sagas.trip(sagas.World()) as trip:
        claimed = claims.running(trip)
        opened = {
            "state": "running",
            "fence": "1",
            "lease_until_0": "",
            "taken_by": "sam",
            "_save": "Save",
        }
        desk.get(f"job/{claimed.id}/change/")
        drives.expire_lease(claimed.id)
        leases.reclaim(10)
        drives.drive_all()
        before = claims.snapshot(claimed.id)
        assert desk.post(claimed.id, opened).status_code == 403
    assert claims.snapshot(claimed.id) == before
    assert before[0]["state"] == "confirmed"


def test_a_stale_page_is_refused_with_the_state_of_now(desk: Desk, stuck: Stuck) -> None:
    seen = stuck.row.fence
    staff.does(stuck.job, "take", by=staff.member("ann"))
    before = everything(stuck)
    told = desk.told(desk.press(stuck.job, "retry", seen, operation="payment:backward"))
    assert "Refused: the page is out of date: the job is parked and goes backward" in told
    assert everything(stuck) == before


def test_a_form_that_is_sent_twice_acts_once(desk: Desk, stuck: Stuck) -> None:
    seen = stuck.row.fence
    form = {"operation": "payment:backward"}
    desk.told(desk.press(stuck.job, "retry", seen, **form))
    told = desk.told(desk.press(stuck.job, "retry", seen, **form))
    assert "Refused: already requested: retry by sam; the job is waiting." in told
    assert staff.resolved(stuck.job) == [("payment:backward", "retry", "sam")]


@pytest.mark.parametrize(
    ("group", "act"),
    [
        ("viewer", "note"),
        ("viewer", "retry"),
        ("operator", "done"),
        ("operator", "not-done"),
        ("operator", "close"),
    ],
)
def test_a_crafted_act_without_leave_does_nothing(stuck: Stuck, group: str, act: str) -> None:
    person, before = logged_in("olga", group), everything(stuck)
    assert f'value="{act}"' not in person.get(f"job/{stuck.job}/change/")
    answer = person.press(stuck.job, act, stuck.row.fence, operation="payment:backward", note="x")
    assert answer.status_code in (302, 403)
    assert everything(stuck) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"seen": ""},
        {"seen": "-1"},
        {"seen": "9" * 5_000},
        {"heard": ""},
        {"_selected_action": "00000000-0000-0000-0000-000000000000"},
        {"csrfmiddlewaretoken": "forged"},
    ],
)
def test_a_crafted_form_is_refused(desk: Desk, stuck: Stuck, fields: dict[str, str]) -> None:
    before = everything(stuck)
    shown = {"seen": str(stuck.row.fence), "heard": "0"}
    whole = {"CHANGE_FORM-action": "retry", **shown, "confirmed": "yes"}
    answer = desk.post(stuck.job, {**whole, "reason": staff.REASON, **fields})
    assert answer.status_code in (400, 403)
    assert everything(stuck) == before


def test_who_is_not_staff_sees_nothing(stuck: Stuck) -> None:
    User.objects.create_user("guest")
    client = Client()
    client.force_login(User.objects.get(username="guest"))
    for path in ("job/", f"job/{stuck.job}/change/"):
        assert client.get(f"/admin/ledger/{path}").status_code == 302


def test_the_groups_are_made_by_the_migration_and_only_once(database: None) -> None:
    for _ in range(2):
        staff.member("sam")
    found = {g.name: g.permissions.count() for g in Group.objects.all()}
    assert found == {"viewer": 3, "operator": 7, "supervisor": 9, "admin": 9}
    assert import_module(staff.MIGRATION).PERMISSIONS == models.PERMISSIONS

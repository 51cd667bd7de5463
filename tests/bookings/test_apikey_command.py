"""`manage.py apikey`: a key is shown once, stored as a hash, and ended for good."""

import io
import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db.models.functions import Now

from bookings.models import ApiKey

pytestmark = pytest.mark.usefixtures("database")


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("apikey", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def create(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("create", *arguments, "--json"))
    return found


def test_create_makes_the_tenant_once_and_prints_the_key_alone() -> None:
    first = run("create", "agent")
    run("create", "agent")
    assert len(first.strip().split(".")) == 2
    assert apps.get_model("ledger", "Tenant").objects.filter(name="agent").count() == 1
    assert ApiKey.objects.count() == 2


def test_the_key_itself_is_not_stored() -> None:
    secret = create("agent")["key"].split(".")[1]
    row = ApiKey.objects.values().get()
    assert all(secret not in str(value) for value in row.values())
    assert row["created"] is not None


def test_scopes_are_those_asked_for() -> None:
    assert create("agent")["scopes"] == ["bookings:read", "bookings:write", "webhooks:manage"]
    assert create("agent", "--scopes", "bookings:read")["scopes"] == ["bookings:read"]


def test_list_names_every_key_and_no_secret() -> None:
    made = create("agent")
    run("revoke", made["prefix"])
    listed = json.loads(run("list", "--json"))
    assert (listed["prefix"], listed["tenant"], listed["revoked"]) == (
        made["prefix"],
        "agent",
        True,
    )
    assert made["key"] not in run("list")
    assert f"{made['prefix']}  revoked" in run("list")


@pytest.mark.parametrize("name", ["", "  ", "a" * 101, "a\x00b", "a\nb"])
def test_a_bad_name_makes_nothing(name: str) -> None:
    with pytest.raises(CommandError, match="tenant's name"):
        create(name)
    assert not ApiKey.objects.exists()
    assert not apps.get_model("ledger", "Tenant").objects.exists()


def test_revoking_an_unknown_prefix_is_an_error() -> None:
    with pytest.raises(CommandError, match="nowhere1"):
        run("revoke", "nowhere1")


def test_a_key_may_have_a_rate_and_an_end() -> None:
    create("agent", "--rate", "30", "--days", "7")
    listed = json.loads(run("list", "--json"))
    assert listed["rate_per_minute"] == 30
    term = datetime.fromisoformat(listed["expires"]) - datetime.fromisoformat(listed["created"])
    assert timedelta(days=7) <= term < timedelta(days=7, seconds=10)
    ApiKey.objects.update(expiry_date=Now())
    assert f"{listed['prefix']}  expired" in run("list")


@pytest.mark.parametrize("option", ["--rate", "--days"])
@pytest.mark.parametrize("value", ["0", "-1", "1000001"])
def test_a_rate_or_an_end_out_of_range_makes_nothing(option: str, value: str) -> None:
    with pytest.raises(CommandError, match=option):
        create("agent", f"{option}={value}")
    assert not ApiKey.objects.exists()

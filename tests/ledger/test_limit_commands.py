"""`manage.py provider` and `manage.py tenant`: what is set is shown, and a bad value changes nothing."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from ledger import models
from tests import factories

pytestmark = pytest.mark.usefixtures("database")


def told(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue().strip()


def shown(*arguments: str) -> dict[str, Any]:
    (row,) = json.loads(told("provider", *arguments, "--json"))
    return dict(row)


def test_what_is_set_is_stored_and_shown_and_the_rest_stays() -> None:
    given = ("--rate", "10", "--compensation-share", "0.3", "--concurrency", "4", "--pause")
    assert told("provider", "payments", *given) == (
        "payments: 10/s, compensations 0.3 of it, 4 at once, paused"
    )
    row = shown("payments", "--resume", "--rate", "none")
    assert (row["rate_per_second"], row["concurrency"], row["paused"]) == (None, 4, False)
    assert row["compensation_share"] == 0.3
    assert told("provider") == "payments: no rate, compensations 0.3 of it, 4 at once"


@pytest.mark.parametrize(
    "given",
    [
        ["--rate", "0"],
        ["--rate", "-1"],
        ["--rate", "1e-9"],
        ["--compensation-share", "0.001"],
        ["--rate", "nan"],
        ["--rate", "inf"],
        ["--rate", "fast"],
        ["--rate", "1e9"],
        ["--compensation-share", "0"],
        ["--compensation-share", "1"],
        ["--compensation-share", "1.5"],
        ["--concurrency", "0"],
        ["--concurrency", "-2"],
        ["--concurrency", "2.5"],
        ["--pause", "--resume"],
    ],
)
def test_a_bad_value_is_named_and_changes_nothing(given: list[str]) -> None:
    models.Provider.objects.create(name="payments", rate_per_second=5.0, concurrency=3)
    before = models.Provider.objects.values().get()
    with pytest.raises(CommandError) as refused:
        call_command("provider", "payments", *given)
    assert given[0].split("=")[0].strip("-") in str(refused.value)
    assert models.Provider.objects.values().get() == before


def test_limits_belong_to_somebody_and_an_unknown_provider_is_not_shown() -> None:
    with pytest.raises(CommandError, match="name it"):
        call_command("provider", "--rate", "5")
    with pytest.raises(CommandError, match="no row"):
        call_command("provider", "nobody")
    with pytest.raises(CommandError, match="up to 100"):
        call_command("provider", "x" * 101, "--pause")
    assert models.Provider.objects.count() == 0


def test_a_tenants_weight_and_cap() -> None:
    tenant = factories.TenantFactory.create()
    assert told("tenant", tenant.name) == f"{tenant.name}: weight 1, cap none"
    assert told("tenant", tenant.name, "--weight", "3", "--cap", "20").endswith("weight 3, cap 20")
    assert told("tenant", tenant.name, "--cap", "none").endswith("weight 3, cap none")
    for bad in (["--weight", "0"], ["--cap", "-1"], ["--cap", "many"]):
        with pytest.raises(CommandError):
            call_command("tenant", tenant.name, *bad)
    tenant.refresh_from_db()
    assert (tenant.weight, tenant.running_cap) == (3, None)
    with pytest.raises(CommandError, match="no tenant"):
        call_command("tenant", "nobody")

"""Whoever books and has it undone, over and over, is seen: each may have cost fees, and gave nothing."""

import io

import pytest
from django.core.management import CommandError, call_command

from ledger import metrics, models, sql
from tests import drives
from tests.cases.trips import Stage, Trip

AN_HOUR_AGO = (
    "UPDATE ledger_job SET acting_fence = fence, finished_at = finished_at - interval '1 hour'"
)


def measured() -> float:
    found = {one.name: one for one in metrics.collector().collect()}
    return float(found["ledger_undone_recently"].samples[0].value)


def told(*args: str) -> str:
    out = io.StringIO()
    call_command("tenant", *args, stdout=out)
    return out.getvalue()


def tenant_of(trip: Trip) -> str:
    return str(models.Tenant.objects.get(id=trip.row().tenant_id).name)


@pytest.fixture
def undone(stage: Stage) -> Trip:
    """One trip is paid and refunded, and another tenant's is made."""
    stage.refuse_tickets()
    trip = stage.book()
    drives.drive_all()
    stage.rules()
    made = stage.book()
    drives.drive_all()
    assert [trip.state(), made.state()] == ["compensated", "confirmed"]
    return trip


def test_who_has_it_undone_is_seen_for_some_minutes(undone: Trip) -> None:
    assert measured() == 1
    assert told() == f"{tenant_of(undone)}: 1 undone in the last 5 minutes\n"
    sql.fetch(AN_HOUR_AGO)
    assert measured() == 0
    assert told() == "no job ended undone in the last 5 minutes\n"


def test_a_weight_without_a_name_changes_nobody(undone: Trip) -> None:
    with pytest.raises(CommandError, match="name"):
        told("--weight", "5")
    assert set(models.Tenant.objects.values_list("weight", flat=True)) == {1}

"""When each sweep last succeeded is stored and shown: in the admin, to Prometheus, and by `manage.py sweeps`."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test import Client
from pytest_django.fixtures import Settings

from bookings import tasks as bookings_tasks
from config import celery
from ledger import models, sql, watch
from ledger.watch import Swept
from recovery import sweeps, tasks
from tests import psql
from tests.conftest import Roles

pytestmark = pytest.mark.usefixtures("database")
RECLAIM = "recovery.reclaim"
TASKS = (
    tasks.reclaim,
    tasks.deadlines,
    tasks.reconcile,
    tasks.promote,
    tasks.ring,
    tasks.overdue,
    tasks.unsupported,
    tasks.retain,
    bookings_tasks.expire_holds,
    bookings_tasks.webhooks,
)


def run_all() -> None:
    for task in TASKS:
        task()


def age(name: str, seconds: float) -> None:
    sql.fetch(
        "UPDATE ledger_sweep SET succeeded_at = succeeded_at - make_interval(secs => %s) WHERE name = %s",
        [seconds, name],
    )


def told(*args: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("sweeps", "--json", *args, stdout=out)
    return dict(json.loads(out.getvalue()))


def overdue() -> list[str]:
    return [one.name for one in watch.passes() if one.is_overdue()]


def test_every_sweep_of_the_schedule_notes_its_success_as_the_worker_does(as_role: Roles) -> None:
    names = set(celery.app.conf.beat_schedule)
    assert {task.name for task in TASKS} == names
    assert set(overdue()) == names  # a system without beat, from its first day
    with as_role("worker"):
        run_all()
    assert overdue() == []
    assert set(models.Sweep.objects.values_list("name", flat=True)) == names
    assert told()["ok"] is True


def test_a_sweep_that_no_longer_succeeds_is_overdue_after_ten_periods_and_the_command_exits_1(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    run_all()
    age(RECLAIM, 10 * settings.SWEEPS[RECLAIM] - 1)
    assert overdue() == []
    age(RECLAIM, 2)
    with pytest.raises(CommandError, match=f"overdue: {RECLAIM};"):
        call_command("sweeps")
    assert "OVERDUE" in capsys.readouterr().out
    sql.replace_connection()
    tasks.reclaim()
    assert told()["ok"] is True


def failing() -> Swept:
    sql.fetch("SELECT pg_terminate_backend(pg_backend_pid())")
    raise AssertionError("the connection is gone")


def test_a_failure_is_noted_and_raised_and_takes_nothing_from_the_last_success() -> None:
    watch.run(RECLAIM, sweeps.reclaim)
    age(RECLAIM, 30)
    with pytest.raises(OperationalError):
        watch.run(RECLAIM, failing)
    (row,) = models.Sweep.objects.filter(name=RECLAIM)
    assert row.succeeded_at is not None
    assert row.failed_at is not None
    assert row.failed_at > row.succeeded_at
    assert row.failure == "OperationalError 57P01"
    (one,) = [p for p in watch.passes() if p.name == RECLAIM]
    assert one.is_failing()
    watch.run(RECLAIM, sweeps.reclaim)
    (one,) = [p for p in watch.passes() if p.name == RECLAIM]
    assert not one.is_failing()


def test_a_pass_that_another_one_kept_from_work_proves_nothing() -> None:
    watch.run(RECLAIM, sweeps.reclaim)
    age(RECLAIM, 30)
    with psql.connected(autocommit=False) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s, 1)", [sweeps.ADVISORY_CLASS])
        swept = watch.run(RECLAIM, sweeps.reclaim)
    assert swept == Swept("reclaim", 0, skipped=True)
    assert RECLAIM in overdue()


def counting(seen: list[str]) -> Callable[[], Swept]:
    def sweep() -> Swept:
        seen.append("swept")
        return Swept("any", 0)

    return sweep


def test_of_a_backlog_one_pass_in_half_a_period_is_made(settings: Settings) -> None:
    """A second beat, or hundreds of messages from an outage: each costs one look."""
    settings.SWEEPS = {RECLAIM: 600.0}
    seen: list[str] = []
    for _ in range(100):
        watch.run(RECLAIM, counting(seen))
    assert seen == ["swept"]
    age(RECLAIM, 301)
    watch.run(RECLAIM, counting(seen))
    assert seen == ["swept"] * 2


def test_a_success_of_the_future_silences_nothing(settings: Settings) -> None:
    """A database whose clock was put back."""
    settings.SWEEPS = {RECLAIM: 600.0}
    seen: list[str] = []
    watch.run(RECLAIM, counting(seen))
    age(RECLAIM, -3_600)
    watch.run(RECLAIM, counting(seen))
    assert seen == ["swept"] * 2


def test_a_note_that_cannot_be_written_fails_no_sweep() -> None:
    with psql.connected() as owner:
        owner.execute("ALTER TABLE ledger_sweep ADD CONSTRAINT test_full CHECK (name = '')")
        try:
            assert watch.run(RECLAIM, sweeps.reclaim) == Swept("reclaim", 0)
        finally:
            owner.execute("ALTER TABLE ledger_sweep DROP CONSTRAINT test_full")
    assert not models.Sweep.objects.exists()


def test_metrics_show_the_age_of_each_sweep_and_jobs_that_have_not_ended(client: Client) -> None:
    tasks.reclaim()
    text = client.get("/metrics").content.decode()
    assert f'ledger_sweep_age_seconds{{sweep="{RECLAIM}"}} 0.' in text
    assert 'ledger_sweep_age_seconds{sweep="recovery.ring"} +Inf' in text
    assert f'ledger_sweep_failing{{sweep="{RECLAIM}"}} 0.0' in text
    assert "ledger_database_up 1.0" in text


def test_staff_see_the_sweeps_and_which_are_late(client: Client) -> None:
    run_all()
    age("recovery.ring", 3_600)
    client.force_login(User.objects.create_superuser("root"))
    page = client.get("/admin/ledger/sweep/").content.decode()
    assert page.count('alt="True"') == len(TASKS) - 1
    assert page.count('alt="False"') == 1
    assert "3600 s ago" in page

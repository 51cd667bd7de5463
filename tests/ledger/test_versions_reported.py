"""A job that no build can drive is put in front of a person: not before its time, and not because the fleet was down."""

import re
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import override_settings
from pytest_django.fixtures import Settings

from ledger import checkpoints, engine, fleet, models, resolutions, saga, shares, versions
from ledger.acts import Asked
from tests import claims, drives, factories, psql, sagas, staff
from tests.recovery import test_sweeps_bad_rows
from tests.sagas import World

TERM = 600
FILL = """
INSERT INTO ledger_job (id, tenant_id, saga, version, input, lane, state, rank)
SELECT uuidv7(), %s, 'test', 1, '{}', 'forward', 'queued', n FROM generate_series(1, 10000) n
"""
JOBS = 5


@pytest.fixture(autouse=True)
def unreported(monkeypatch: pytest.MonkeyPatch, settings: Settings, database: None) -> None:
    monkeypatch.setattr(versions, "_reported_at", float("-inf"))
    settings.UNSUPPORTED_SECONDS = TERM


def definition(number: int, world: World | None = None) -> saga.Saga:
    step = sagas.step(world or World(), "only", undo=saga.NotUndoable("last step"), pivot=True)
    return saga.Saga("test.reported", version=number, steps=[step])


def queued(number: int, count: int = 1) -> list[UUID]:
    found = [factories.submit(definition(number)) for _ in range(count)]
    shares.promote("forward")
    return found


def pass_time(seconds: float) -> None:
    """For every job and report that there is: rows move, no clock does."""
    with psql.connected() as owner:
        owner.execute(
            "UPDATE ledger_job SET acting_fence = fence, due_at = due_at - make_interval(secs => %s)",
            [seconds],
        )
        owner.execute(
            "UPDATE ledger_knownversion SET reported_at = reported_at - make_interval(secs => %s)",
            [seconds],
        )


def heard(*numbers: int, build: str = "this", formats: range = checkpoints.READABLE) -> None:
    """A build with these versions reports once, as a process of its own."""
    with override_settings(BUILD=build), pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "_reported_at", float("-inf"))
        patch.setattr(checkpoints, "READABLE", formats)
        versions.report([definition(number) for number in numbers])


def through(seconds: int, *numbers: int, **how: Any) -> None:
    """So much time in which a build reports every minute."""
    for _ in range(seconds // 60):
        pass_time(60)
        heard(*numbers, **how)


def found(job: UUID) -> models.Job:
    return models.Job.objects.get(id=job)


def test_a_run_reports_what_its_build_drives_once_in_a_while(settings: Settings) -> None:
    settings.BUILD = "2026-01"
    with sagas.registered(definition(1)), sagas.registered(definition(2)):
        engine.drive("forward")
        rows = fleet.KnownVersion.objects.filter(saga="test.reported")
        told = rows.values_list("version", "build", "format_from", "format_to")
        span = (checkpoints.READABLE[0], checkpoints.READABLE[-1])
        assert sorted(told) == [(1, "2026-01", *span), (2, "2026-01", *span)]
        fleet.KnownVersion.objects.all().delete()
        engine.drive("forward")
        assert not fleet.KnownVersion.objects.exists()


def test_many_processes_of_one_build_write_once() -> None:
    heard(1)
    first = fleet.KnownVersion.objects.get(saga="test.reported").reported_at
    heard(1)
    assert fleet.KnownVersion.objects.get(saga="test.reported").reported_at == first


def test_a_job_that_no_build_knows_for_the_whole_term_is_parked() -> None:
    (job,), (known,) = queued(2), queued(1)
    heard(1)
    through(TERM - 60, 1)
    assert versions.park_unsupported(10) == 0
    before = found(job)
    through(120, 1)
    assert versions.park_unsupported(10) == 1
    after = found(job)
    assert (after.state, after.parked_reason) == ("parked", "unsupported_version")
    assert after.parked_detail == (
        "no build has known test.reported version 2 with checkpoint format 1 for 600 s"
    )
    assert (after.fence, after.seq) == (before.fence + 1, before.seq)
    assert found(known).state == "queued"
    assert versions.park_unsupported(10) == 0


def test_it_is_left_alone_while_any_build_knows_it() -> None:
    (job,) = queued(2)
    for _ in range(3):
        through(300, 1, build="old")
        heard(2, build="new")
    before = claims.snapshot(job)
    assert versions.park_unsupported(10) == 0
    assert claims.snapshot(job) == before


def test_a_format_that_no_build_reads_is_not_known() -> None:
    (job,) = queued(1)
    heard(1, formats=range(2, 3))
    through(TERM + 60, 1, formats=range(2, 3))
    assert versions.park_unsupported(10) == 1
    assert "checkpoint format 1" in found(job).parked_detail


def test_a_fleet_that_says_nothing_parks_nothing() -> None:
    (job,) = queued(2)
    heard(1)
    pass_time(10 * TERM)
    assert versions.park_unsupported(10) == 0
    assert found(job).state == "queued"


def test_after_an_outage_every_build_has_the_whole_term_to_come_back() -> None:
    """Both were driven before it, and the build with version 2 is the last to be started again."""
    heard(1, 2)
    through(TERM, 1, 2)
    (job,) = queued(2)
    pass_time(10 * TERM)
    heard(1)
    assert versions.park_unsupported(10) == 0
    through(TERM - 60, 1)
    assert versions.park_unsupported(10) == 0
    heard(2, build="late")
    through(TERM, 1, 2)
    assert versions.park_unsupported(10) == 0
    assert found(job).state == "queued"


def test_a_pass_is_bounded_and_the_next_goes_on() -> None:
    queued(2, JOBS)
    heard(1)
    through(TERM + 60, 1)
    assert [versions.park_unsupported(2) for _ in range(4)] == [2, 2, 1, 0]
    assert models.Job.objects.filter(parked_reason="unsupported_version").count() == JOBS


def test_a_job_that_somebody_has_in_hand_is_passed_over() -> None:
    one, other = queued(2, 2)
    heard(1)
    through(TERM + 60, 1)
    with psql.connected("worker") as session, session.transaction():
        session.execute("SELECT 1 FROM ledger_job WHERE id = %s FOR NO KEY UPDATE", [one])
        assert versions.park_unsupported(10) == 1
    assert (found(one).state, found(other).state) == ("queued", "parked")


def test_a_row_that_is_refused_stops_nobody() -> None:
    bad, good = queued(2, 2)
    heard(1)
    through(TERM + 60, 1)
    with test_sweeps_bad_rows.refusing(bad):
        assert versions.park_unsupported(10) == 1
    assert (found(bad).state, found(good).state) == ("queued", "parked")


def test_suspects_are_not_forgotten() -> None:
    (job,) = queued(2)
    with psql.connected("worker") as session:
        session.execute("UPDATE ledger_job SET acting_fence = fence, suspect = true")
    heard(1)
    through(TERM + 60, 1)
    assert versions.park_unsupported(10) == 1
    assert found(job).state == "parked"


def test_a_person_sends_it_back_for_a_build_that_knows_it() -> None:
    world = World()
    (job,) = queued(2)
    heard(1)
    through(TERM + 60, 1)
    versions.park_unsupported(10)
    asked = Asked(act="retry", by="ops", reason="the build with version 2 is deployed again")
    assert resolutions.act(job, asked, by=staff.member("ops")).state == "waiting"
    with sagas.registered(definition(2, world)):
        shares.promote("forward")
        assert versions.park_unsupported(10) == 0, "it has its term again"
        drives.drive_all()
    assert found(job).state == "confirmed"
    assert world.called == ["only:forward"]


def test_a_pass_reads_the_kinds_of_jobs_and_not_the_jobs() -> None:
    """Of ten thousand queued, most of them of a version that is known: one step of the index for each kind."""
    for number in (1, 2):
        queued(number)
    with psql.connected() as owner:
        owner.execute(FILL, [factories.TenantFactory.create().id])
        owner.execute("ANALYZE ledger_job")
    known = saga.Saga("test", version=1, steps=[])
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(TERM // 60 + 1):
            pass_time(60)
            patch.setattr(versions, "_reported_at", float("-inf"))
            versions.report([known, definition(1)])
    params: dict[str, Any] = {
        "limit": 5,
        "term": TERM,
        "silence": TERM / 2,
        "reason": "unsupported_version",
        "only": None,
    }
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE) {versions.PARK}", params)
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "Seq Scan on ledger_job" not in plan
    assert sum(int(n) for n in re.findall(r"Rows Removed by Filter: (\d+)", plan)) <= 10
    read = re.findall(r"(?:ledger_job_queued|on ledger_job).* rows=([\d.]+) loops=(\d+)", plan)
    assert 0 < sum(float(rows) * int(loops) for rows, loops in read) <= 60
    parked = models.Job.objects.filter(state="parked")
    assert [(j.saga, j.version) for j in parked] == [("test.reported", 2)]

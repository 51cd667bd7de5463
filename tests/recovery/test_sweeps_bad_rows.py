"""One row that the database refuses stops nobody: the others of its batch go on, and it is shown, pass after pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import pytest
from django.db import OperationalError, ProgrammingError
from pytest_django.fixtures import Settings

from ledger import leases, models, saga, sightings, singly, sql, telemetry
from ledger.watch import Swept
from recovery import sweeps
from tests import drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")
REFUSE = """
CREATE FUNCTION test_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'never this row' USING ERRCODE = 'P0001', CONSTRAINT = 'test_refuse'; END $$;
CREATE TRIGGER test_refuse BEFORE UPDATE OR DELETE ON ledger_job FOR EACH ROW
    WHEN (OLD.id IN ({ids})) EXECUTE FUNCTION test_refuse();
"""
ALLOW = "DROP TRIGGER test_refuse ON ledger_job; DROP FUNCTION test_refuse();"


@contextmanager
def refusing(*ids: UUID) -> Iterator[None]:
    """Within the block the database refuses any change of these jobs: their rows are bad for good."""
    with psql.connected() as owner:
        owner.execute(REFUSE.format(ids=", ".join(f"'{id_}'" for id_ in ids)))
        try:
            yield
        finally:
            owner.execute(ALLOW)


def expired(trip: saga.Saga) -> UUID:
    id_ = factories.submit(trip)
    sweeps.promote()
    (claimed,) = leases.claim("forward", 1, [trip.key], leases.owner())
    drives.expire_lease(claimed.id)
    return id_


def past_deadline(trip: saga.Saga) -> UUID:
    return drives.moved(factories.submit(trip), "deadline_at = ledger_now() - interval '1 min'")


def past_pivot(trip: saga.Saga) -> UUID:
    change = "deadline_at = ledger_now() - interval '61 min', pivot_sent = true"
    return drives.moved(factories.submit(trip), change)


def due(trip: saga.Saga) -> UUID:
    return factories.submit(trip)


def contradicted(trip: saga.Saga) -> UUID:
    id_ = factories.submit(trip)
    drives.drive_all()
    seen = sightings.NewSighting(
        id_, "room", saga.Direction.FORWARD, 1, "late", "refused", {}, None
    )
    sightings.record([seen])
    return id_


def long_ended(trip: saga.Saga) -> UUID:
    id_ = factories.submit(trip)
    drives.drive_all()
    return drives.moved(id_, "finished_at = ledger_now() - interval '8 days'")


@dataclass(frozen=True)
class Case:
    """How a job comes before the sweep, and what the sweep leaves of those that it could write."""

    name: str
    make: Callable[[saga.Saga], UUID]
    sweep: Callable[[], Swept]
    after: str


CASES = [
    Case("reclaim", expired, sweeps.reclaim, "queued"),
    Case("deadlines", past_deadline, sweeps.expire_deadlines, "waiting"),
    Case("overdue", past_pivot, sweeps.park_overdue, "parked"),
    Case("promote", due, sweeps.promote, "queued"),
    Case("reconcile", contradicted, sweeps.reconcile, "parked"),
    Case("retain", long_ended, sweeps.retain, "gone"),
]


def state(id_: UUID) -> str:
    return models.Job.objects.filter(id=id_).values_list("state", flat=True).first() or "gone"


def refused(name: str) -> float:
    return float(telemetry.refused_rows.labels(sweep=name)._value.get())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_others_go_on_and_the_bad_one_is_as_it_was(case: Case, settings: Settings) -> None:
    settings.RETENTION_DAYS = 7
    with sagas.trip(sagas.World()) as trip:
        ids = [case.make(trip) for _ in range(4)]
        bad = ids[0]  # at the head of every order
        before, shown = models.Job.objects.values().get(id=bad), refused(case.name)
        with refusing(bad):
            assert case.sweep().count == 3
            assert case.sweep().count == 0
        assert models.Job.objects.values().get(id=bad) == before
        assert [state(id_) for id_ in ids[1:]] == [case.after] * 3
        assert refused(case.name) == shown + 2
        assert case.sweep().count == 1
    assert state(bad) == case.after


def test_more_bad_rows_than_a_batch_holds_hide_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "RECLAIM_BATCH", 2)
    with sagas.trip(sagas.World()) as trip:
        ids = [past_deadline(trip) for _ in range(5)]
        with refusing(*ids[:4]):
            assert sweeps.expire_deadlines().count == 1
    assert models.Job.objects.get(id=ids[4]).direction == "backward"


def test_an_error_that_is_no_rows_ends_the_pass() -> None:
    """Control: one by one is for bad rows; what may pass by itself is left to the next pass."""
    tried: list[singly.Only] = []

    def write(only: singly.Only) -> list[int]:
        tried.append(only)
        sql.fetch("SET LOCAL statement_timeout = 1; SELECT pg_sleep(1)")
        return []

    with pytest.raises(OperationalError, match="statement timeout"):
        singly.written("any", write, lambda _tried: [UUID(int=1)])
    assert tried == [None]


def test_a_bad_row_does_not_stop_a_run_that_ranks_for_itself() -> None:
    """A run promotes before it claims: one bad row must not keep a whole lane from being driven."""
    with sagas.trip(sagas.World()) as trip:
        bad, good = factories.submit(trip), factories.submit(trip)
        with refusing(bad):
            drives.drive_all()
    assert (drives.state(bad), drives.state(good)) == ("waiting", "confirmed")


def test_without_a_term_nothing_is_removed(settings: Settings) -> None:
    with sagas.trip(sagas.World()) as trip:
        id_ = long_ended(trip)
        assert sweeps.retain() == Swept("retain", 0)
        settings.RETENTION_DAYS = 9
        assert sweeps.retain() == Swept("retain", 0)
    assert state(id_) == "confirmed"


def test_retention_removes_under_its_own_role_and_leaves_the_sweeps_connection_as_it_was(
    settings: Settings,
) -> None:
    settings.RETENTION_DAYS = 7
    with sagas.trip(sagas.World()) as trip:
        ids = [long_ended(trip) for _ in range(3)]
        mine = psql.pid()
        assert sweeps.retain().count == 3
    assert [state(id_) for id_ in ids] == ["gone"] * 3
    assert psql.pid() == mine
    assert sql.fetch("SELECT current_user") == [("amends_worker",)]


def test_a_sweep_that_lacks_the_right_fails_as_a_whole_and_removes_nothing(
    settings: Settings,
) -> None:
    """Control: no row is to blame for that, and a sweep that can do nothing must not look like one that succeeds."""
    settings.RETENTION_DAYS, settings.RETENTION_LOGIN = 7, {}
    with sagas.trip(sagas.World()) as trip:
        id_ = long_ended(trip)
        with pytest.raises(ProgrammingError, match="permission denied"):
            sweeps.retain()
    assert state(id_) == "confirmed"

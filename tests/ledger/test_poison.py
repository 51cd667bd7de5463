"""A job that takes its process down: suspected, driven alone, parked after three losses alone; its neighbours go on."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from ledger import crashpoints, engine, leases, models, saga, sql
from ledger.states import ParkedReason
from tests import claims, drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")


@pytest.fixture
def trip() -> Iterator[saga.Saga]:
    with sagas.trip(sagas.World()) as definition:
        yield definition


GIVE_BACK = """
UPDATE ledger_job SET acting_fence = fence, state = 'queued', owner = NULL, lease_until = NULL WHERE state = 'running'
"""


def poison_of(job_id: UUID) -> tuple[str, bool, int, int]:
    """State, whether it is a suspect, losses in company, strikes."""
    job = models.Job.objects.get(id=job_id)
    return job.state, job.suspect, job.losses, job.strikes


def lose(*held: leases.Claimed, how: str) -> None:
    """The owner of these jobs is gone: known to be dead, or its leases pass."""
    if how == "owner_dead":
        leases.end_owner(leases.owner())
        return
    for claimed in held:
        drives.expire_lease(claimed.id)
    leases.reclaim(10)


def claim(definition: saga.Saga, slots: int = 1, *, suspect: bool = False) -> list[UUID]:
    found = leases.claim("forward", slots, [definition.key], uuid4(), suspect=suspect)
    return [claimed.id for claimed in found]


def suspected(definition: saga.Saga) -> UUID:
    """A job that was lost twice with nothing else in its process's hands."""
    claimed = claims.running(definition)
    lose(claimed, how="owner_dead")
    assert claim(definition) == [claimed.id], "the first loss is forgiven"
    lose(claimed, how="owner_dead")
    return claimed.id


@pytest.mark.parametrize("how", ["owner_dead", "lease_expired"])
def test_a_loss_in_company_strikes_nobody_and_a_second_one_makes_suspects(
    trip: saga.Saga, how: str
) -> None:
    ids = [factories.submit(trip) for _ in range(3)]
    lose(*claims.claim(trip, slots=3), how=how)
    assert [poison_of(i) for i in ids] == [("queued", False, 1, 0)] * 3
    lose(*claims.claim(trip, slots=3), how=how)
    assert [poison_of(i) for i in ids] == [("queued", True, 2, 0)] * 3


@pytest.mark.parametrize("how", ["owner_dead", "lease_expired"])
def test_the_third_loss_alone_parks_the_job_and_leaves_what_was_open_in_its_journal(
    trip: saga.Saga, how: str
) -> None:
    claimed = claims.running(trip)
    assert claims.settle(claims.write(claimed, attempts=[claims.attempt("room")])) == ["applied"]
    for strikes, is_suspect in ((1, False), (2, True)):
        lose(claimed, how=how)
        assert poison_of(claimed.id) == ("queued", is_suspect, 0, strikes)
        assert claim(trip, suspect=is_suspect) == [claimed.id]
    lose(claimed, how=how)
    job = models.Job.objects.get(id=claimed.id)
    assert (job.state, job.strikes, job.fence) == ("parked", 3, 6)
    assert (job.owner, job.lease_until, job.parked_reason) == (None, None, ParkedReason.WORKER_LOST)
    assert job.parked_detail == "its process was lost 3 times while it drove nothing else"
    assert claims.rows(claimed.id)["sighting"] == 1
    assert claim(trip, suspect=True) == []


def test_a_receipt_clears_it_all(trip: saga.Saga) -> None:
    job_id = suspected(trip)
    (claimed,) = leases.claim("forward", 1, [trip.key], uuid4(), suspect=True)
    assert claimed.suspect
    write = claims.write(claimed, receipts=[claims.receipt()], attempts=[claims.attempt("room")])
    assert claims.settle(write) == ["applied"]
    assert poison_of(job_id) == ("running", False, 0, 0)


def test_a_write_without_a_receipt_proves_nothing(trip: saga.Saga) -> None:
    job_id = suspected(trip)
    (claimed,) = leases.claim("forward", 1, [trip.key], uuid4(), suspect=True)
    assert claims.settle(claims.write(claimed, attempts=[claims.attempt("room")])) == ["applied"]
    assert poison_of(job_id) == ("running", True, 0, 2)


def test_a_suspect_is_in_no_ordinary_claim_and_only_one_is_taken_at_a_time(
    trip: saga.Saga,
) -> None:
    suspects = {suspected(trip), suspected(trip)}
    sound = factories.submit(trip)
    assert [c.id for c in claims.claim(trip, slots=10)] == [sound]
    assert len(suspects & set(claim(trip, 10, suspect=True))) == 1


def test_a_suspect_of_another_version_is_nobodys_business(trip: saga.Saga) -> None:
    suspected(trip)
    assert leases.has_suspect("forward", [trip.key])
    assert not leases.has_suspect("forward", [(trip.name, 9)])
    assert leases.claim("forward", 1, [(trip.name, 9)], uuid4(), suspect=True) == []


def test_at_most_one_process_in_four_drives_a_suspect(trip: saga.Saga) -> None:
    suspected(trip)
    suspected(trip)
    assert claim(trip, suspect=True)
    for _ in range(6):
        leased_elsewhere(trip)
    assert not leases.has_suspect("forward", [trip.key])
    assert claim(trip, suspect=True) == []
    leased_elsewhere(trip)
    assert leases.has_suspect("forward", [trip.key])
    assert claim(trip, suspect=True)


def test_of_many_that_come_back_at_once_after_a_crash_one_drives_a_suspect(
    trip: saga.Saga,
) -> None:
    """They would all die of it at once."""
    for _ in range(3):
        suspected(trip)
    for _ in range(5):
        psql.together(4, lambda _n: claim(trip, suspect=True))
        assert models.Job.objects.filter(suspect=True, state="running").count() == 1
        sql.fetch(GIVE_BACK)


def leased_elsewhere(trip: saga.Saga) -> None:
    claimed = claims.running(trip)
    with psql.connected("worker") as session:
        session.execute(
            "UPDATE ledger_job SET acting_fence = fence, owner = gen_random_uuid() WHERE id = %s",
            [claimed.id],
        )


def test_a_run_drives_a_suspect_alone_until_its_first_receipt(trip: saga.Saga) -> None:
    suspect = suspected(trip)
    others = [factories.submit(trip) for _ in range(3)]
    run = engine.Run("forward")
    run.claim()
    assert list(run.held) == [suspect]
    run.claim()
    assert list(run.held) == [suspect], "nothing beside it"
    while run.held[suspect].is_suspect:
        run.renew()
        run.take_in()
        run.settle()
        run.run_locals()
    run.claim()
    assert set(run.held) == {suspect, *others}
    drives.drive_all()


def test_a_process_that_makes_way_claims_nothing_until_it_holds_nothing(
    trip: saga.Saga, monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.submit(trip)
    run = engine.Run("forward")
    run.claim()
    held = list(run.held)
    lost_in_company(trip)
    factories.submit(trip)
    run._claim_at = 0.0
    run.claim()
    assert list(run.held) == held
    monkeypatch.setattr(engine, "makes_way", False)
    run.claim()
    assert len(run.held) == 2, "the others go on as if there were none"


def lost_in_company(trip: saga.Saga) -> None:
    """Make one suspect without touching what this process holds."""
    job_id = factories.submit(trip)
    sql.fetch(
        "UPDATE ledger_job SET acting_fence = fence, state = 'queued', rank = 0, suspect = true WHERE id = %s",
        [job_id],
    )


def test_a_suspect_that_only_waits_for_others_to_end_does_not_hide_them(trip: saga.Saga) -> None:
    """Another process took it between the look and the claim: this one claims what else there is."""
    suspected(trip)
    sound = factories.submit(trip)
    run = engine.Run("forward")
    taken: list[UUID] = []

    def take(_point: str) -> None:
        if not taken:
            taken.append(sound)  # before the claim, which comes here too
            taken.extend(claim(trip, suspect=True))

    with crashpoints.armed("claim.before", take):
        run.claim()
    assert len(taken) == 2
    assert list(run.held) == [sound]

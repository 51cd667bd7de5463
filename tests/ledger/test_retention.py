"""Only ended jobs past their term leave, through one function of one role; what an app keeps of them goes along."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger import models, outcomes, retention, sql
from ledger.states import ENDED
from tests import claims, conftest, drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")

TERM = timedelta(days=2)


@pytest.fixture(autouse=True)
def hooks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    own: list[Any] = []
    monkeypatch.setattr(retention, "_hooks", own)
    return own


def ended(state: str = "confirmed", days: float = 3.0) -> UUID:
    """A job that ended so many days ago."""
    world = sagas.World()
    with sagas.trip(world) as trip:
        if state != "confirmed":
            where = "room:forward" if state == "refused" else "ticket:forward"
            world.says(where, sagas.raising(outcomes.Refused("no")))
        id_ = factories.submit(trip)
        drives.drive_all()
    assert drives.state(id_) == state
    sql.fetch(
        "UPDATE ledger_job SET acting_fence = fence, finished_at = ledger_now() - make_interval(secs => %s)"
        " WHERE id = %s",
        [days * 86_400, id_],
    )
    return id_


def retain(term: timedelta = TERM, limit: int = 100) -> int:
    with conftest.role("retention"):
        return retention.retain(term, limit)


def exists(id_: UUID) -> bool:
    return models.Job.objects.filter(id=id_).exists()


@pytest.mark.parametrize("state", ["confirmed", "refused", "compensated"])
def test_an_ended_job_past_its_term_goes_with_its_whole_journal(state: str) -> None:
    old, young = ended(state), ended(state, days=1.9)
    before = claims.snapshot(young)
    assert retain() == 1
    assert not exists(old)
    assert set(claims.rows(old).values()) == {0}
    assert claims.snapshot(young) == before


def test_its_key_stays_and_what_was_asked_does_not() -> None:
    id_ = ended()
    kept = models.Submission.objects.get(job_id=id_)
    assert retain() == 1
    after = models.Submission.objects.get(id=kept.id)
    assert (after.job_id, after.request, after.key) == (None, {}, kept.key)
    assert bytes(after.fingerprint) == bytes(kept.fingerprint)


def test_a_job_that_has_not_ended_stays_however_old_it_is() -> None:
    world = sagas.World()
    world.says("payment:forward", sagas.raising(TimeoutError()))
    with sagas.trip(world, effect=world.effect("payment", key_lifetime=None)) as trip:
        parked = factories.submit(trip)
        drives.drive_all()
        waiting, running = factories.submit(trip), claims.running(trip)
    assert drives.state(parked) == "parked"
    assert retain() == 0
    with conftest.role("retention"):
        ids = [parked, waiting, running.id]
        assert sql.fetch("SELECT ledger_retain(%s::uuid[], %s)", [ids, TERM]) == [(0,)]
    assert models.Job.objects.count() == 3


def test_the_function_itself_takes_only_what_is_past_its_term() -> None:
    old, young = ended(), ended(days=1.9)
    with psql.connected("retention") as session:
        row = session.execute(
            "SELECT ledger_retain(%s::uuid[], %s)", [[old, young], TERM]
        ).fetchone()
    assert row == (1,)
    assert (exists(old), exists(young)) == (False, True)


@pytest.mark.parametrize("term", [timedelta(hours=23), timedelta(), timedelta(days=-1)])
def test_a_term_under_a_day_is_refused_here_and_in_the_database(term: timedelta) -> None:
    id_ = ended()
    with pytest.raises(ValueError, match="is under a day"):
        retain(term)
    with psql.connected("retention") as session:
        refused = psql.refusal(session, "SELECT ledger_retain(%s::uuid[], %s)", [[id_], term])
    assert refused[0] == "P0001"
    assert exists(id_)


@pytest.mark.parametrize("role", ["worker", "api"])
def test_no_other_role_may(role: str) -> None:
    id_ = ended()
    with psql.connected(role) as session:
        refused = psql.refusal(session, "SELECT ledger_retain(%s::uuid[], %s)", [[id_], TERM])
    assert refused[0] == "42501"
    assert exists(id_)


def test_a_pass_is_bounded_and_the_next_goes_on() -> None:
    ids = [ended() for _ in range(3)]
    assert [retain(limit=2) for _ in range(3)] == [2, 1, 0]
    assert not any(exists(id_) for id_ in ids)


def test_an_apps_rows_go_in_the_same_transaction_and_before_the_job(hooks: list[Any]) -> None:
    id_, seen = ended(), []

    def hook(job_ids: Sequence[UUID]) -> None:
        seen.append((list(job_ids), exists(id_)))

    hooks.append(hook)
    assert retain() == 1
    assert seen == [([id_], True)]


def test_a_hook_that_fails_keeps_everything(hooks: list[Any]) -> None:
    id_ = ended()
    before = claims.snapshot(id_)

    def failing(_job_ids: Sequence[UUID]) -> None:
        raise LookupError

    hooks.append(failing)
    with pytest.raises(LookupError):
        retain()
    assert claims.snapshot(id_) == before


def test_a_job_that_is_being_written_is_left_for_the_next_pass() -> None:
    busy, free = ended(), ended()
    with psql.connected(autocommit=False) as other:
        other.execute("SELECT 1 FROM ledger_job WHERE id = %s FOR UPDATE", [busy])
        assert retain() == 1
    assert (exists(busy), exists(free)) == (True, False)
    assert retain() == 1


def test_these_are_the_states_that_retention_knows() -> None:
    with psql.connected() as session:
        row = session.execute(
            "SELECT prosrc FROM pg_proc WHERE proname = 'ledger_retain'"
        ).fetchone()
    assert row is not None
    assert all(f"'{state}'" in row[0] and f"'{state}'" in retention.PAST_TERM for state in ENDED)

"""What psql cannot forget either: the database refuses a job's UPDATE without its fence and a move that is no edge."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from ledger import guards, states
from ledger.states import ENDED, JobState
from tests import claims, psql, sagas

pytestmark = pytest.mark.usefixtures("database")

STATES = list(JobState)
ROLES = ["owner", "worker", "api"]


@pytest.fixture
def job() -> UUID:
    with sagas.trip(sagas.World()) as trip:
        return claims.running(trip).id


@pytest.fixture(params=ROLES)
def session(request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    with psql.connected(request.param) as session:
        yield session


def columns_of(state: JobState) -> str:
    """What the table's own constraints demand beside a state, as a SET list."""
    running, parked, ended = state is JobState.RUNNING, state is JobState.PARKED, state in ENDED
    return (
        f"state = '{state}', rank = 1,"
        f" owner = {'gen_random_uuid()' if running else 'NULL'}, lease_until = {'now()' if running else 'NULL'},"
        f" parked_reason = '{'exhausted' if parked else ''}', parked_at = {'now()' if parked else 'NULL'},"
        f" finished_at = {'now()' if ended else 'NULL'}"
    )


def update(change: str) -> str:
    return f"UPDATE ledger_job SET {change} WHERE id = %s"  # noqa: S608  text of this test only


def brought_to(job: UUID, state: JobState) -> None:
    """Put a job there without the guard, as only a superuser in replica mode can."""
    with psql.connected() as owner:
        owner.execute("SET session_replication_role = replica")
        owner.execute(update(columns_of(state)), [job])


@pytest.mark.parametrize(
    "acting", ["", ", acting_fence = NULL", ", acting_fence = fence - 1", ", acting_fence = 99"]
)
def test_an_update_that_does_not_state_the_current_fence_is_refused(
    job: UUID, session: psycopg.Connection[Any], acting: str
) -> None:
    before = claims.snapshot(job)
    refused = psql.refusal(session, update(f"cost = 2 {acting}"), [job])
    assert refused == ("P0001", "ledger_job_acting_fence")
    assert claims.snapshot(job) == before


def test_an_update_that_states_it_goes_through_and_has_to_state_it_again(
    job: UUID, session: psycopg.Connection[Any]
) -> None:
    session.execute(update("cost = 2, acting_fence = fence"), [job])
    row = session.execute(
        "SELECT cost, acting_fence FROM ledger_job WHERE id = %s", [job]
    ).fetchone()
    assert row == (2.0, None)
    again = psql.refusal(session, update("cost = 3"), [job])
    assert again == ("P0001", "ledger_job_acting_fence")


@pytest.mark.parametrize(
    ("change", "guard"),
    [
        ("fence = fence - 1", "ledger_job_counters"),
        ("seq = seq + 2", "ledger_job_counters"),
        ("seq = seq - 1", "ledger_job_counters"),
        ("saga = 'another'", "ledger_job_accepted"),
        ("version = version + 1", "ledger_job_accepted"),
        ("""input = '{"amount_minor": 1}'""", "ledger_job_accepted"),
        ("created_at = created_at - interval '1 s'", "ledger_job_accepted"),
        ("id = gen_random_uuid()", "ledger_job_accepted"),
    ],
)
def test_counters_only_grow_and_what_was_accepted_does_not_change(
    job: UUID, session: psycopg.Connection[Any], change: str, guard: str
) -> None:
    before = claims.snapshot(job)
    refused = psql.refusal(session, update(f"{change}, acting_fence = fence"), [job])
    assert refused == ("P0001", guard)
    assert claims.snapshot(job) == before


@pytest.mark.parametrize(
    "change", ["fence = fence + 1", "seq = seq + 1", "fence = fence + 1, seq = seq + 1"]
)
def test_a_fence_and_a_seq_may_grow(
    job: UUID, session: psycopg.Connection[Any], change: str
) -> None:
    before = claims.snapshot(job)
    assert session.execute(update(f"{change}, acting_fence = fence"), [job]).rowcount == 1
    assert claims.snapshot(job) != before


@pytest.mark.parametrize("before", STATES)
def test_a_state_moves_exactly_along_the_declared_edges(job: UUID, before: JobState) -> None:
    for role in ROLES:
        with psql.connected(role) as session:
            allowed = {after for after in STATES if moves(session, job, before, after)}
        assert allowed == {before, *states.TRANSITIONS[before]}


def moves(session: psycopg.Connection[Any], job: UUID, before: JobState, after: JobState) -> bool:
    """Whether the database takes this move; a refusal leaves the job where it was."""
    brought_to(job, before)
    error = psql.met(session, update(f"{columns_of(after)}, acting_fence = fence"), [job])
    row = session.execute("SELECT state FROM ledger_job WHERE id = %s", [job]).fetchone()
    if error == ("", ""):
        assert row == (after,)
        return True
    assert (error, row) == (("P0001", "ledger_job_transition"), (before,))
    return False


def test_the_installed_guard_is_the_one_made_from_the_states() -> None:
    with psql.connected() as session:
        installed = session.execute(
            "SELECT prosrc FROM pg_proc WHERE proname = 'ledger_job_guard'"
        ).fetchone()
    assert installed is not None
    assert installed[0] == guards.job_guard(states.edges()).split("$$")[1]


def test_a_job_is_neither_deleted_nor_truncated(job: UUID) -> None:
    with psql.connected() as owner:
        deleted = psql.refusal(owner, "DELETE FROM ledger_job WHERE id = %s", [job])
        truncated = psql.refusal(owner, "TRUNCATE ledger_job CASCADE")
    assert deleted == ("P0001", "ledger_append_only")
    assert truncated[0] == "P0001"
    with psql.connected("worker") as worker:
        assert psql.refusal(worker, "DELETE FROM ledger_job WHERE id = %s", [job])[0] == "42501"
        assert psql.refusal(worker, "TRUNCATE ledger_job CASCADE")[0] == "42501"
    assert claims.snapshot(job)[0]["id"] == job

"""For every accepted (tenant, key) exactly one job; the ring goes out after the commit, once, and never inside it."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from ledger import crashpoints, models, outcomes, retention, saga, sql, submission, tickets
from recovery import sweeps
from tests import conftest, drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")

REQUEST = {"hotel": "RESORT", "nights": 2, "guests": [{"name": "Ann"}, {"name": "Bob"}]}
INPUT = {**REQUEST, "total_minor": 20_000}
Submit = Callable[..., submission.Submitted]


@pytest.fixture
def trip() -> Iterator[saga.Saga]:
    with sagas.trip(sagas.World()) as definition:
        yield definition


@pytest.fixture
def rings() -> Iterator[list[str]]:
    """One entry for each job whose ring is about to go out."""
    rung: list[str] = []
    with crashpoints.armed("submit.after_commit", rung.append):
        yield rung


@pytest.fixture
def submit(trip: saga.Saga) -> Submit:
    tenant = factories.TenantFactory.create()

    def one(**other: Any) -> submission.Submitted:
        asked = {
            "tenant_id": tenant.id,
            "key": "key-1",
            "saga": trip,
            "request": REQUEST,
            "input": INPUT,
        }
        return submission.submit(**{**asked, **other})

    return one


def rows() -> tuple[int, int]:
    return models.Submission.objects.count(), models.Job.objects.count()


def test_a_new_key_makes_one_job_that_waits_and_rings_once(
    submit: Submit, rings: list[str]
) -> None:
    accepted = submit()
    job = models.Job.objects.get()
    assert (accepted.job_id, accepted.created) == (job.id, True)
    assert (job.state, job.lane, job.direction, job.fence, job.seq) == (
        "waiting",
        "forward",
        "forward",
        0,
        0,
    )
    assert (job.input, job.pivot_sent) == (INPUT, False)
    assert (rows(), len(rings)) == ((1, 1), 1)


def test_the_same_key_and_request_is_the_same_job_without_a_row_or_a_ring(
    submit: Submit, rings: list[str]
) -> None:
    first = submit()
    reordered = dict(reversed(REQUEST.items()))
    again = [submit(), submit(request=reordered)]
    assert again == [submission.Submitted(first.job_id, created=False)] * 2
    assert (rows(), len(rings)) == ((1, 1), 1)


def test_another_request_under_the_key_is_refused_naming_fields_and_no_value(
    submit: Submit, rings: list[str]
) -> None:
    submit()
    other = {
        "hotel": "RESORT",
        "nights": 777,
        "guests": [{"name": "Ann"}, {"name": "Zoe"}],
        "cot": True,
    }
    with pytest.raises(outcomes.SubmissionConflict) as refused:
        submit(request=other)
    assert refused.value.pointers == ("/cot", "/guests/1/name", "/nights")
    assert all(value not in str(refused.value) for value in ("777", "Zoe", "Bob"))
    assert (rows(), len(rings)) == ((1, 1), 1)
    assert models.Job.objects.get().input == INPUT


def test_the_fingerprint_is_the_requests_and_not_the_inputs(submit: Submit) -> None:
    first = submit()
    assert submit(input={"total_minor": 1}).job_id == first.job_id
    assert models.Job.objects.get().input == INPUT
    with pytest.raises(outcomes.SubmissionConflict):
        submit(request={**REQUEST, "nights": 3})


def test_the_stored_fingerprint_counts_and_not_what_jsonb_made_of_the_request(
    submit: Submit,
) -> None:
    first = submit()
    sql.fetch("SET ROLE none")
    models.Submission.objects.update(request={"rewritten": True})
    assert submit().job_id == first.job_id


def test_another_saga_under_the_key_is_refused(submit: Submit, trip: saga.Saga) -> None:
    submit()
    with pytest.raises(outcomes.SubmissionConflict) as refused:
        submit(saga=saga.Saga("test.other", version=1, steps=trip.steps))
    assert refused.value.pointers == ("/",)
    assert rows() == (1, 1)


def test_another_tenant_or_another_key_is_another_job(submit: Submit, rings: list[str]) -> None:
    jobs = {
        submit().job_id,
        submit(key="key-2").job_id,
        submit(tenant_id=factories.TenantFactory.create().id).job_id,
    }
    assert (len(jobs), rows(), len(rings)) == (3, (3, 3), 3)


class Abandoned(Exception):
    """The caller changes its mind."""


def _submit_and_abandon(submit: Submit) -> None:
    assert submit().created
    raise Abandoned


def test_an_outer_transaction_that_rolls_back_leaves_nothing_and_rings_nothing(
    submit: Submit, rings: list[str]
) -> None:
    with pytest.raises(Abandoned), transaction.atomic():
        _submit_and_abandon(submit)
    assert (rows(), rings) == ((0, 0), [])
    assert submit().created


def test_an_outer_transaction_that_commits_rings_after_its_commit(
    submit: Submit, rings: list[str]
) -> None:
    with transaction.atomic():
        submit()
        assert rings == []
        with psql.connected() as other:
            assert other.execute("SELECT count(*) FROM ledger_job").fetchone() == (0,)
    assert (rows(), len(rings)) == ((1, 1), 1)


def _fail(point: str) -> None:
    raise crashpoints.CrashPointError(point)


@pytest.mark.parametrize("point", ["submit.before_insert", "submit.after_insert"])
def test_a_crash_before_the_commit_leaves_nothing(
    submit: Submit, rings: list[str], point: str
) -> None:
    with crashpoints.armed(point, _fail), pytest.raises(crashpoints.CrashPointError):
        submit()
    assert (rows(), rings) == ((0, 0), [])


def test_a_failing_ring_fails_no_submission(submit: Submit) -> None:
    with crashpoints.armed("submit.after_commit", _fail):
        assert submit().created
    assert rows() == (1, 1)


def test_a_ring_that_fails_keeps_no_hook_of_the_callers_from_running(submit: Submit) -> None:
    ran: list[str] = []
    with crashpoints.armed("submit.after_commit", _fail), transaction.atomic():
        submit()
        transaction.on_commit(lambda: ran.append("the caller's"))
    assert ran == ["the caller's"]


def test_a_hook_of_the_callers_that_fails_first_takes_the_ring_and_not_the_job(
    submit: Submit, rings: list[str]
) -> None:
    """The caller hears of its own mistake after the commit. The same again is the same job, and the sweep rings for it."""

    @transaction.atomic
    def submit_beside_a_mistake() -> None:
        transaction.on_commit(partial(_fail, "submit.after_commit"))
        submit()

    with pytest.raises(crashpoints.CrashPointError):
        submit_beside_a_mistake()
    job = models.Job.objects.get()
    assert (rows(), rings) == ((1, 1), [])
    assert submit() == submission.Submitted(job.id, created=False)
    rung: list[str] = []
    with tickets.heard_by(rung.append):
        assert sweeps.ring().count == 1
    assert rung == ["forward"]


def test_sixteen_threads_with_one_key_make_one_job(submit: Submit, rings: list[str]) -> None:
    accepted = psql.together(16, lambda _n: submit())
    assert len({a.job_id for a in accepted}) == 1
    assert sorted(a.created for a in accepted) == [False] * 15 + [True]
    assert (rows(), len(rings)) == ((1, 1), 1)


def test_sixteen_threads_with_one_key_and_different_requests_make_one_job(submit: Submit) -> None:
    def one(number: int) -> UUID | None:
        try:
            return submit(request={**REQUEST, "nights": number}).job_id
        except outcomes.SubmissionConflict:
            return None

    accepted = psql.together(16, one)
    assert len([job for job in accepted if job]) == 1
    assert rows() == (1, 1)


def test_a_second_submitter_waits_for_the_first_to_commit_and_takes_over_when_it_rolls_back(
    submit: Submit,
) -> None:
    with psql.connected() as watch:
        with transaction.atomic():
            first = submit()
            second = psql.Thread(submit)
            psql.await_lock_wait(watch)
            transaction.set_rollback(True)
        result = second.result()
    assert result.created
    assert result.job_id != first.job_id
    assert rows() == (1, 1)


def test_a_second_submitter_that_waited_for_a_commit_gets_the_first_ones_job(
    submit: Submit,
) -> None:
    with psql.connected() as watch:
        with transaction.atomic():
            first = submit()
            second = psql.Thread(submit)
            psql.await_lock_wait(watch)
        assert second.result() == submission.Submitted(first.job_id, created=False)
    assert rows() == (1, 1)


def _retain(job_id: UUID) -> None:
    sql.fetch(
        "UPDATE ledger_job SET acting_fence = fence, finished_at = ledger_now() - interval '3 days' WHERE id = %s",
        [job_id],
    )
    with conftest.role("retention"):
        assert retention.retain(timedelta(days=2)) == 1


def test_after_retention_the_key_stays_used_and_says_gone(submit: Submit, rings: list[str]) -> None:
    accepted = submit()
    drives.drive_all()
    assert drives.state(accepted.job_id) == "confirmed"
    _retain(accepted.job_id)
    with pytest.raises(outcomes.SubmissionGone):
        submit()
    assert (rows(), len(rings)) == ((1, 0), 1)
    assert submit(key="key-2").created


def test_after_retention_another_request_makes_no_job_either(submit: Submit) -> None:
    accepted = submit()
    drives.drive_all()
    _retain(accepted.job_id)
    with pytest.raises(outcomes.SubmissionGone):
        submit(request={**REQUEST, "nights": 3})
    assert rows() == (1, 0)


def test_a_request_that_has_no_canonical_form_leaves_nothing(submit: Submit) -> None:
    with pytest.raises(TypeError, match="/price: a float has no canonical form"):
        submit(request={"price": 1.5})
    assert rows() == (0, 0)

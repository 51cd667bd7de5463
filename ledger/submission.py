"""Submission: for every accepted (tenant, key) exactly one job. The first door on the path.

It joins the caller's transaction or opens one, so that a booking and its job commit together; the ticket is rung after
that commit and never inside it. The fingerprint is taken over the validated request and stored; it is never recomputed
from what jsonb made of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from ledger import canonical, crashpoints, journal, outcomes, sql, telemetry, tickets
from ledger.saga import Saga
from ledger.states import Lane


@dataclass(frozen=True, slots=True)
class Submitted:
    """`answer` is what the caller's own statement read and wrote beside the job."""

    job_id: UUID
    created: bool
    answer: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Beside:
    """A statement that gives ARGUMENTS to `ledger_submit` at most once, and returns one row with its result first; and the
    caller's own parameters.
    """

    text: str
    params: Mapping[str, Any]


# The function is in the migration 0009.
ARGUMENTS = """%(tenant)s, %(key)s, %(fingerprint)s, %(request)s::jsonb, %(saga)s, %(version)s, %(input)s::jsonb, %(lane)s,
    %(deadline)s"""
ALONE = f"SELECT ledger_submit({ARGUMENTS})"
FIND = (
    "SELECT job_id, fingerprint, request FROM ledger_submission WHERE tenant_id = %s AND key = %s"
)


USED = "SELECT key FROM ledger_submission WHERE tenant_id = %s AND key = ANY(%s)"


def used(tenant_id: UUID, keys: Sequence[str]) -> set[str]:
    """Those of the keys that lead to a job already, or did."""
    return {row[0] for row in sql.fetch(USED, [tenant_id, list(keys)])}


def find(tenant_id: UUID, key: str, request: Mapping[str, Any], saga: str) -> UUID | None:
    """The job that this key already has; None for a new key.

    Raises SubmissionConflict for another request, naming the fields that differ; SubmissionGone after retention.
    """
    rows = sql.fetch(FIND, [tenant_id, key])
    if not rows:
        return None
    job_id, stored, stored_request = rows[0]
    if job_id is None:  # first: what was asked is gone too, so that no difference could be named
        raise outcomes.SubmissionGone(key)
    if bytes(stored) != _fingerprint(saga, request):
        differing = canonical.differences(journal.as_json(stored_request), request)
        raise outcomes.SubmissionConflict(key, [d.pointer for d in differing] or ["/"])
    return UUID(str(job_id))


def submit(
    *,
    tenant_id: UUID,
    key: str,
    saga: Saga,
    request: Mapping[str, Any],
    input: Mapping[str, Any],  # noqa: A002  the saga's own word
    deadline: timedelta | None = None,
) -> Submitted:
    """Accept a request once. The same key and request again: the same job, no new row, no new ticket.

    `request` is what the client asked for, `input` what the saga runs on. Raises SubmissionConflict, SubmissionGone.
    """
    own = {} if deadline is None else {"deadline": deadline.total_seconds()}
    # One statement: a caller's transaction needs no savepoint for it.
    with transaction.atomic(savepoint=False):
        submitted = submit_beside(
            Beside(ALONE, own),
            tenant_id=tenant_id,
            key=key,
            saga=saga,
            request=request,
            input=input,
        )
    assert submitted is not None, "an insert that met a conflict leaves a row to find"
    return submitted


def submit_beside(
    beside: Beside,
    *,
    tenant_id: UUID,
    key: str,
    saga: Saga,
    request: Mapping[str, Any],
    input: Mapping[str, Any],  # noqa: A002
) -> Submitted | None:
    """The same, with rows of the caller's own in the same statement: they are there with the job or not at all. Outside of
    a transaction that statement is one by itself. None where it did not submit and the key is new.
    """
    params = {
        "tenant": tenant_id,
        "key": key,
        "fingerprint": _fingerprint(saga.name, request),
        "request": canonical.encode(request),
        "saga": saga.name,
        "version": saga.version,
        "input": canonical.encode(input),
        "lane": Lane.FORWARD.value,
        "deadline": settings.SAGA_DEADLINE_SECONDS.get(saga.name),  # None: it may take any time
        **beside.params,
    }
    crashpoints.reach("submit.before_insert")
    job_id, *answer = sql.fetch(beside.text, params)[0]
    crashpoints.reach("submit.after_insert")
    if job_id is not None:
        transaction.on_commit(partial(_accepted, saga.name), robust=True)
        return Submitted(job_id, created=True, answer=tuple(answer))
    known = find(tenant_id, key, request, saga.name)
    if known is None:
        return None
    telemetry.submissions.labels(result="replayed").inc()
    return Submitted(known, created=False)


def _accepted(saga: str) -> None:
    crashpoints.reach("submit.after_commit")
    telemetry.submissions.labels(result="accepted").inc()
    telemetry.emit("job.accepted", level="debug", saga=saga)
    tickets.ring(Lane.FORWARD)


def _fingerprint(saga: str, request: Mapping[str, Any]) -> bytes:
    return canonical.fingerprint({"saga": saga, "request": request})

"""Submission: for every accepted (tenant, key) exactly one job. The first door on the path.

It joins the caller's transaction or opens one, so that a booking and its job commit together; the ticket is rung after
that commit and never inside it. The fingerprint is taken over the validated request and stored; it is never recomputed
from what jsonb made of it.
"""

from collections.abc import Mapping
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
    job_id: UUID
    created: bool


INSERT = """
WITH s AS (
    INSERT INTO ledger_submission (tenant_id, key, fingerprint, request, job_id)
    VALUES (%(tenant)s, %(key)s, %(fingerprint)s, %(request)s::jsonb, uuidv7())
    ON CONFLICT ON CONSTRAINT ledger_submission_once DO NOTHING RETURNING job_id)
INSERT INTO ledger_job (id, tenant_id, saga, version, input, lane, deadline_at)
SELECT job_id, %(tenant)s, %(saga)s, %(version)s, %(input)s::jsonb, %(lane)s,
    ledger_now() + make_interval(secs => %(deadline)s) FROM s
RETURNING id
"""

FIND = (
    "SELECT job_id, fingerprint, request FROM ledger_submission WHERE tenant_id = %s AND key = %s"
)


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
    params = {
        "tenant": tenant_id,
        "key": key,
        "fingerprint": _fingerprint(saga.name, request),
        "request": canonical.encode(request),
        "saga": saga.name,
        "version": saga.version,
        "input": canonical.encode(input),
        "lane": Lane.FORWARD.value,
        "deadline": _deadline_seconds(saga.name, deadline),
    }
    with transaction.atomic(
        savepoint=False
    ):  # one statement: a caller's transaction needs no savepoint for it
        crashpoints.reach("submit.before_insert")
        created = sql.fetch(INSERT, params)
        crashpoints.reach("submit.after_insert")
        if created:
            transaction.on_commit(partial(_accepted, saga.name), robust=True)
            return Submitted(created[0][0], created=True)
    job_id = find(tenant_id, key, request, saga.name)
    assert job_id is not None, "an insert that met a conflict leaves a row to find"
    telemetry.submissions.labels(result="replayed").inc()
    return Submitted(job_id, created=False)


def _deadline_seconds(saga: str, deadline: timedelta | None) -> float | None:
    """The submission's own deadline, or the saga's in settings; None: it may take any time."""
    if deadline is not None:
        return deadline.total_seconds()
    found: float | None = settings.SAGA_DEADLINE_SECONDS.get(saga)
    return found


def _accepted(saga: str) -> None:
    crashpoints.reach("submit.after_commit")
    telemetry.submissions.labels(result="accepted").inc()
    telemetry.emit("job.accepted", level="debug", saga=saga)
    tickets.ring(Lane.FORWARD)


def _fingerprint(saga: str, request: Mapping[str, Any]) -> bytes:
    return canonical.fingerprint({"saga": saga, "request": request})

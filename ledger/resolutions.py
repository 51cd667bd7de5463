"""Acts of people on a parked job, through the one guarded write that all of them are.

The invariant: a person has no other way into a job than an owner has. An act takes authority first (fence + 1, where the
fence is the one that the person's page showed and the job is still parked), its resolution carries the new fence, and the
staff log is written in the same transaction. So a stale page changes nothing, and a double click does nothing twice.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import AbstractUser
from django.contrib.contenttypes.models import ContentType
from django.db import transaction

from ledger import (
    acts,
    checkpoints,
    crashpoints,
    evidence,
    journal,
    models,
    operations,
    policy,
    saga,
    sql,
    telemetry,
    tickets,
    turns,
)
from ledger.acts import ActRefused, Asked, Case, Move
from ledger.saga import Direction
from ledger.states import JobState, Lane

REASON_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the act did, as it stands in the journal, and the job's state after it."""

    act: str
    operation: str
    state: str
    at: datetime


LOOK = """
SELECT state, direction, pivot_sent, fence, seq, parked_reason, parked_detail, parked_at, taken_by, ledger_now(), saga,
    version
FROM ledger_job WHERE id = %s
"""

ACT = """
WITH moved AS (
    UPDATE ledger_job j SET acting_fence = %(fence)s, fence = j.fence + 1, seq = j.seq + 1, state = %(to)s,
        taken_by = %(taken_by)s, heard = CASE WHEN %(to)s = 'parked' THEN j.heard END,
        direction = CASE WHEN %(turns)s THEN 'backward' ELSE j.direction END,
        turned_by = CASE WHEN %(turns)s THEN left(%(by)s, 100) ELSE j.turned_by END,
        turned_reason = CASE WHEN %(turns)s THEN left(%(reason)s, 200) ELSE j.turned_reason END,
        turned_at = CASE WHEN %(turns)s THEN ledger_now() ELSE j.turned_at END,
        lane = CASE WHEN %(to)s <> 'waiting' THEN j.lane
            WHEN %(turns)s OR j.direction = 'backward' THEN 'compensation' ELSE 'forward' END,
        due_at = CASE WHEN %(to)s = 'waiting' THEN ledger_now() ELSE j.due_at END,
        -- The term that it was given at first, or by the last retry: what has passed since is not part of it.
        deadline_at = CASE WHEN %(fresh)s THEN ledger_now() + (j.deadline_at - coalesce((SELECT max(p.at)
            FROM ledger_resolution p WHERE p.job_id = j.id AND p.act = 'retry'), j.created_at)) ELSE j.deadline_at END,
        strikes = CASE WHEN %(fresh)s THEN 0 ELSE j.strikes END,  -- still a suspect: it is tried again alone
        parked_reason = CASE WHEN %(to)s = 'parked' THEN j.parked_reason ELSE '' END,
        checkpoint_format = CASE WHEN %(to)s = 'closed' THEN %(format)s ELSE j.checkpoint_format END,
        parked_detail = CASE WHEN %(to)s = 'parked' THEN j.parked_detail ELSE '' END,
        parked_at = CASE WHEN %(to)s = 'parked' THEN j.parked_at END,
        finished_at = CASE WHEN %(to)s = 'closed' THEN ledger_now() END
    WHERE j.id = %(job)s AND j.state = 'parked' AND j.fence = %(fence)s AND j.seq = %(seq)s
    RETURNING j.id, j.fence, j.seq, j.lane),
r AS (
    INSERT INTO ledger_resolution (job_id, seq, fence, step, direction, act, decided_by, reason, evidence, at)
    SELECT m.id, m.seq, m.fence, %(step)s, %(direction)s, %(act)s, %(by)s, %(reason)s, %(evidence)s::jsonb, ledger_now()
    FROM moved m RETURNING at),
c AS (
    INSERT INTO ledger_checkpoint (job_id, seq, fence, format, data, at)
    SELECT m.id, m.seq, m.fence, %(format)s, %(checkpoint)s::jsonb, ledger_now() FROM moved m
    WHERE %(checkpoint)s::jsonb IS NOT NULL)
SELECT moved.lane, r.at FROM moved, r
"""


def act(
    job_id: UUID,
    asked: Asked,
    *,
    by: AbstractUser,
    seen: int | None = None,
    heard: int | None = None,
) -> Resolved:
    """Do what a person asks, or raise ActRefused with nothing written. Joins the caller's transaction or opens one.

    `seen` is the fence that their page showed, `heard` how many sightings; None: whatever is current now.
    """
    _refuse_unfit(asked, by)
    with transaction.atomic():
        case = look(job_id)
        if asked.act == "compensate" and case.state is not JobState.PARKED:
            _refuse_overtaken(case, seen)
            return _turn(case, asked, by)
        acts.refuse_moved(case, asked, seen)
        acts.refuse_unheard(case, asked, heard)
        move = _judge(case, asked)
        crashpoints.reach("resolution.before")
        stored = sql.fetch(ACT, _parameters(case, asked, move))
        if not stored:
            acts.refuse_moved(look(job_id), asked, case.fence)
            raise acts.MovedOn("the job has moved on; look again")
        lane, at = stored[0]
        _log(job_id, by, f"{move.act} {acts.name_of(move.key)}: parked -> {move.to}", asked, at)
        _tell(job_id, move.act, lane if move.to is JobState.WAITING else None)
    return Resolved(move.act, acts.name_of(move.key), move.to, at)


def _judge(case: Case, asked: Asked) -> Move:
    try:
        return acts.judge(case, asked)
    except ActRefused:  # of a journal in which somebody else may have acted since the row was read
        acts.refuse_moved(look(case.job_id), asked, case.fence)
        raise


def look(job_id: UUID) -> Case:
    """The job with all that acts are judged by. ActRefused for an unknown id."""
    rows = sql.fetch(LOOK, [job_id])
    if not rows:
        raise ActRefused(f"there is no job {job_id}")
    state, direction, pivot, fence, seq, reason, detail, parked_at, taken, now, name, version = (
        rows[0]
    )
    entries = journal.read([job_id])[job_id]
    return Case(
        job_id=job_id,
        state=JobState(state),
        direction=Direction(direction),
        pivot_sent=pivot,
        fence=fence,
        seq=seq,
        parked_reason=reason,
        parked_detail=detail,
        parked_at=parked_at,
        taken_by=taken,
        now=now,
        ops=operations.fold(entries),
        past=[e for e in entries if isinstance(e, operations.Resolution)],
        definition=saga.find(name, version),
        policy=policy.current(),
    )


def may(by: AbstractUser, name: str) -> bool:
    """Whether this person may do that act at all."""
    is_staff = by.is_active and by.is_staff
    return is_staff and by.has_perm(f"ledger.{acts.VERBS[name].permission}")


def _refuse_unfit(asked: Asked, by: AbstractUser) -> None:
    """What can be refused without a look at the job."""
    assert asked.by == by.get_username(), "an act is its doer's"
    if asked.act not in acts.VERBS:
        raise ActRefused(f"there is no act {asked.act!r}; the acts are {', '.join(acts.VERBS)}")
    if not may(by, asked.act):
        permission = acts.VERBS[asked.act].permission
        raise acts.NotPermitted(f"{asked.by} may not {asked.act}: {permission} is needed")
    if len(asked.reason.strip()) < acts.REASON_MIN:
        raise ActRefused(f"a reason of at least {acts.REASON_MIN} characters is needed")


def _parameters(case: Case, asked: Asked, move: Move) -> dict[str, Any]:
    step, direction = move.key or ("", case.direction)
    return {
        "job": case.job_id,
        "fence": case.fence,
        "seq": case.seq,
        "to": move.to.value,
        "act": move.act,
        "step": step,
        "direction": direction.value,
        "by": asked.by,
        "reason": _reason(asked),
        "evidence": journal.as_text(evidence.storable(_said(asked, move))),
        "turns": move.turns,
        "fresh": move.fresh,
        "taken_by": move.taken_by,
        "format": settings.CHECKPOINT_FORMAT,
        "checkpoint": _checkpoint(case) if move.to is JobState.CLOSED else None,
    }


def _checkpoint(case: Case) -> str:
    """A job that people close ends like any other: with how far it had settled."""
    data = checkpoints.make(
        settings.CHECKPOINT_FORMAT,
        case.ops,
        state=JobState.CLOSED,
        direction=case.direction,
        pivot_sent=case.pivot_sent,
    )
    return journal.as_text(data)


def _refuse_overtaken(case: Case, seen: int | None) -> None:
    """Of a job that is not parked, claims raise the fence all the time: only another person's act since is news."""
    acted = models.Resolution.objects.filter(job_id=case.job_id, fence__gt=seen or 0)
    if seen is not None and (last := acted.order_by("id").last()) is not None:
        since = f"{last.act} by {last.decided_by}"
        raise acts.MovedOn(f"the page is out of date: {since}; the job is {case.state}; look again")


def _turn(case: Case, asked: Asked, by: AbstractUser) -> Resolved:
    """A job that is not parked turns as it does for a cancel, without authority: who and why stand in its columns."""
    acts.refuse_no_way_back(case)
    if not turns.cancel(case.job_id, by=asked.by[:100], reason=_reason(asked)[:200]):
        raise acts.MovedOn("the job has moved on; look again")
    _log(case.job_id, by, f"compensate: turned back while {case.state}", asked, case.now)
    _tell(case.job_id, asked.act, Lane.COMPENSATION)
    return Resolved(asked.act, "", look(case.job_id).state, case.now)


def _said(asked: Asked, move: Move) -> dict[str, Any]:
    """The person's evidence, and what a witness had beside it: later arguments are derived from the ruling alone."""
    return {**move.witness, **{name: value for name, value in asked.evidence.items() if value}}


def _reason(asked: Asked) -> str:
    return str(evidence.storable(asked.reason.strip()))[:REASON_MAX]


def _log(job_id: UUID, by: AbstractUser, what: str, asked: Asked, at: datetime) -> None:
    LogEntry.objects.create(
        action_time=at,  # the default would be this process's clock
        user_id=by.pk,
        content_type=ContentType.objects.get_for_model(models.Job),
        object_id=str(job_id),
        object_repr=f"job {job_id}",
        action_flag=CHANGE,
        change_message=f"{what}. {_reason(asked)}",
    )


def _tell(job_id: UUID, what: str, lane: str | None) -> None:
    transaction.on_commit(partial(_acted, job_id, what, lane), robust=True)


def _acted(job_id: UUID, what: str, lane: str | None) -> None:
    crashpoints.reach("resolution.after")
    telemetry.emit("job.resolved", job=str(job_id), reason=what)
    if lane:
        tickets.ring(lane)

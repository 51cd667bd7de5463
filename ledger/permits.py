"""Permits: a provider's leave to make one call. The loop asks here for all its calls at once, before their attempts.

The promise: a limit of a provider holds for the whole fleet and does not hang on the broker. Whoever asks holds the lock of
the provider's row while it counts, in a transaction of its own that ends before anything is sent (`ledger.pacing` says who
may go). A call without a permit is put off: its job waits with a due time, and holds no slot, no lease and no attempt.

A provider that has no limit and answers costs one look per turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from ledger import (
    actions,
    calls,
    clock,
    crashpoints,
    holding,
    pacing,
    patience,
    saga,
    shares,
    sql,
    telemetry,
    tickets,
)
from ledger.holding import Held
from ledger.journal import Write
from ledger.pacing import Heard, Leave, Provider
from ledger.states import Lane

Decided = tuple[Held, Write]
TRY_GRACE_SECONDS = 1.0

COLUMNS = """name, paused, rate_per_second, compensation_share, concurrency, throttled_until, failures, opened, open_until,
    is_tried, forward_free_at, forward_queued_until, compensation_free_at, compensation_queued_until"""
LIMITED = """
SELECT name FROM ledger_provider WHERE name = ANY(%s) AND (paused OR rate_per_second IS NOT NULL OR concurrency IS NOT NULL
    OR failures > 0 OR opened > 0 OR throttled_until > (SELECT ledger_now()))
"""
MAKE = "INSERT INTO ledger_provider (name) SELECT unnest(%s::text[]) ON CONFLICT (name) DO NOTHING"
LOCK = f"SELECT {COLUMNS} FROM ledger_provider WHERE name = ANY(%s) ORDER BY name FOR NO KEY UPDATE"  # noqa: S608
ALL = f"SELECT {COLUMNS} FROM ledger_provider ORDER BY name"  # noqa: S608
STORE = """
UPDATE ledger_provider SET throttled_until = %s, failures = %s, opened = %s, open_until = %s, is_tried = %s,
    forward_free_at = %s, forward_queued_until = %s, compensation_free_at = %s, compensation_queued_until = %s
WHERE name = %s
"""
# One write of its job, its attempt, belongs to a permit; the next has its receipt. Those who ask have nothing out.
END = """
DELETE FROM ledger_permit p WHERE provider = %s AND (job_id = ANY(%s::uuid[]) OR NOT EXISTS (SELECT 1 FROM ledger_job j
    WHERE j.id = p.job_id AND j.fence = p.fence AND j.seq <= p.seq + 1 AND j.state = 'running'
        AND j.lease_until > (SELECT ledger_now())))
"""
UNDER_WAY = "SELECT lane, count(*) FROM ledger_permit WHERE provider = %s GROUP BY lane"
LIMIT = """
UPDATE ledger_provider SET paused = %s, rate_per_second = %s, compensation_share = %s, concurrency = %s WHERE name = %s
"""
COUNT_IN = """
INSERT INTO ledger_permit (job_id, provider, lane, fence, seq)
SELECT job, %s, %s, fence, seq FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[]) AS g(job, fence, seq)
ON CONFLICT (job_id) DO UPDATE SET provider = excluded.provider, lane = excluded.lane, fence = excluded.fence,
    seq = excluded.seq
"""


@dataclass(frozen=True, slots=True)
class _Moment:
    """The database's time, and this process's clock right before and right after it said so."""

    now: datetime
    before: float
    after: float

    def permit(self, at: datetime) -> calls.Permit:
        """Never too early, and void too early rather than too late, wherever this process stood still."""
        ahead = (at - self.now).total_seconds()
        return calls.Permit(self.after + ahead, self.before + ahead + pacing.LATE.total_seconds())


def pass_through(decided: Sequence[Decided], until: float) -> list[Decided]:
    """What may be stored and sent now: a call that has no permit became a wait. Takes in what was heard of providers."""
    asking: dict[str, list[Held]] = {}
    heard: dict[str, list[Heard]] = {}
    for held, _ in decided:
        if name := _provider_of(held):
            asking.setdefault(name, []).append(held)
        for name, one in held.take_echoes():
            heard.setdefault(name, []).append(one)
    names = _limited(asking, heard, until)
    if not names:
        return list(decided)
    put_off = sql.persist(lambda: _take(names, asking, heard), until)
    return [(h, _wait(h, put_off[h.id]) if h.id in put_off else w) for h, w in decided]


def hold_back(decided: Sequence[Decided]) -> list[Decided]:
    """As `pass_through`, for who has locked other rows and must not wait for a provider's: a call that needs a permit is
    left for the next turn.
    """
    names = sorted({_provider_of(held) for held, _ in decided} - {""})
    limited = {row[0] for row in sql.fetch(LIMITED, [names])} if names else set()
    return [
        (h, h.decide(leaving=False, instead=holding.STAY) if _provider_of(h) in limited else w)
        for h, w in decided
    ]


def limit(name: str, changes: Mapping[str, Any]) -> int:
    """Set limits of a provider, by column; the jobs that may have waited for it look again at once, their lanes are rung.
    Returns how many these are. Harmless to repeat.
    """
    with transaction.atomic(durable=True):
        sql.fetch(MAKE, [[name]])
        (provider,) = (_provider(row) for row in sql.fetch(LOCK, [[name]]))
        pacing.limit(
            provider,
            rate=changes.get("rate_per_second", provider.rate),
            compensation_share=changes.get("compensation_share", provider.compensation_share),
        )
        is_paused = changes.get("paused", provider.is_paused)
        concurrency = changes.get("concurrency", provider.concurrency)
        limits = [is_paused, provider.rate, provider.compensation_share, concurrency]
        sql.fetch(LIMIT, [*limits, name])
        sql.fetch(STORE, _stored(provider))
    callers = [definition.name for definition in saga.registered() if _calls(definition, name)]
    woken = shares.hasten(callers, pacing.WAIT_MAX)
    for lane in woken:
        tickets.ring(lane)
    return woken.total()


def standing() -> list[Provider]:
    """Every provider that has a row, in order of name."""
    return [_provider(row) for row in sql.fetch(ALL)]


def _limited(
    asking: Mapping[str, list[Held]], heard: Mapping[str, list[Heard]], until: float
) -> list[str]:
    """Those that have limits or a story, in order of name: their rows are locked in it."""
    named = sorted(asking.keys() | heard.keys())
    if not named:
        return []
    rows = sql.persist(lambda: sql.fetch(LIMITED, [named]), until)
    troubled = {name for name, all_ in heard.items() if any(one.is_trouble() for one in all_)}
    return sorted({row[0] for row in rows} | troubled)


def _take(
    names: list[str], asking: Mapping[str, list[Held]], heard: Mapping[str, list[Heard]]
) -> dict[UUID, timedelta]:
    """Permits for whoever gets one; how long the others wait. Done twice after a lost reply, it wastes a few permits."""
    crashpoints.reach("permits.before")
    put_off: dict[UUID, timedelta] = {}
    with transaction.atomic(durable=True):
        sql.fetch(MAKE, [names])
        providers = [_provider(row) for row in sql.fetch(LOCK, [names])]
        before = clock.monotonic()
        now = sql.fetch("SELECT ledger_now()")[0][0]
        moment = _Moment(now, before, clock.monotonic())
        for provider in providers:
            before_it = provider.opened
            pacing.hear(provider, heard.get(provider.name, []), now, policy())
            _tell(provider, before_it)
            put_off |= _share_out(provider, asking.get(provider.name, []), moment)
            sql.fetch(STORE, _stored(provider))
    crashpoints.reach("permits.after")
    return put_off


def _share_out(
    provider: Provider, asking: Sequence[Held], moment: _Moment
) -> dict[UUID, timedelta]:
    if not asking:
        return {}
    lane = asking[0].claimed.lane  # a run has one
    room = _room(provider, lane, asking)
    draws = [patience.draw(f"{held.id}:{moment.now}") for held in asking]
    provider.voids = max(held.voids for held in asking)
    leaves = pacing.share_out(provider, lane, draws, moment.now, room=room, policy=policy())
    granted = [held for held, leave in zip(asking, leaves, strict=True) if leave.is_permit]
    if granted and room is not None:
        numbers = [h.id for h in granted], [h.fence for h in granted], [h.seq for h in granted]
        sql.fetch(COUNT_IN, [provider.name, lane, *numbers])
    _count(provider.name, lane, leaves)
    waits: dict[UUID, timedelta] = {}
    for held, leave in zip(asking, leaves, strict=True):
        if not leave.is_permit:
            waits[held.id] = leave.at - moment.now
        elif (
            provider.rate is not None
        ):  # without one a call may begin whenever its thread gets to it
            held.permit = moment.permit(leave.at)
    return waits


def _room(provider: Provider, lane: str, asking: Sequence[Held]) -> int | None:
    if provider.concurrency is None:
        return None
    sql.fetch(END, [provider.name, [held.id for held in asking]])
    return provider.room(lane, dict(sql.fetch(UNDER_WAY, [provider.name])))


def _count(name: str, lane: str, leaves: Sequence[Leave]) -> None:
    granted = sum(leave.is_permit for leave in leaves)
    telemetry.permits.labels(name, lane, "granted").inc(granted)
    telemetry.permits.labels(name, lane, "put_off").inc(len(leaves) - granted)


def _tell(provider: Provider, opened_before: int) -> None:
    if provider.opened > opened_before:
        telemetry.emit("circuit.opened", level="warning", provider=provider.name)
    elif provider.opened < opened_before:
        telemetry.emit("circuit.closed", provider=provider.name)


def policy() -> pacing.Policy:
    s = settings
    return pacing.Policy(
        throttle_max=timedelta(seconds=s.PROVIDER_THROTTLE_SECONDS_MAX),
        failures_max=s.PROVIDER_FAILURES_MAX,
        open_for=timedelta(seconds=s.PROVIDER_OPEN_SECONDS),
        open_max=timedelta(seconds=s.PROVIDER_OPEN_SECONDS_MAX),
        try_for=timedelta(seconds=s.CALL_SECONDS_MAX + TRY_GRACE_SECONDS),
    )


def _calls(definition: saga.Saga, name: str) -> bool:
    effects = (s.effect_of(way) for s in definition.steps for way in saga.Direction)
    return any(isinstance(e, saga.Effect) and e.provider == name for e in effects)


def _wait(held: Held, delay: timedelta) -> Write:
    return held.decide(leaving=False, instead=actions.Wait(delay, held.claimed.lane))


def _provider_of(held: Held) -> str:
    """Whom its next action calls; nobody, where it is no call or the effect names no provider."""
    action = held.next
    if isinstance(action, actions.RunLocal) or not isinstance(
        action, actions.Send | actions.Ask | actions.Bury
    ):
        return ""
    effect = action.step.effect_of(action.direction)
    return effect.provider if isinstance(effect, saga.Effect) else ""


def _provider(row: Sequence[Any]) -> Provider:
    (
        name,
        paused,
        rate,
        share,
        concurrency,
        throttled,
        failures,
        opened,
        open_until,
        tried,
        *ends,
    ) = row
    forward = pacing.Queue(ends[0] or pacing.PAST, ends[1] or pacing.PAST)
    compensation = pacing.Queue(ends[2] or pacing.PAST, ends[3] or pacing.PAST)
    return Provider(
        name,
        is_paused=paused,
        rate=rate,
        compensation_share=share,
        concurrency=concurrency,
        throttled_until=throttled or pacing.PAST,
        failures=failures,
        opened=opened,
        open_until=open_until or pacing.PAST,
        is_tried=tried,
        queues={Lane.FORWARD: forward, Lane.COMPENSATION: compensation},
    )


def _stored(provider: Provider) -> list[Any]:
    forward, back = provider.queues[Lane.FORWARD], provider.queues[Lane.COMPENSATION]
    return [
        _time(provider.throttled_until),
        provider.failures,
        provider.opened,
        _time(provider.open_until),
        provider.is_tried,
        _time(forward.free_at),
        _time(forward.queued_until),
        _time(back.free_at),
        _time(back.queued_until),
        provider.name,
    ]


def _time(at: datetime) -> datetime | None:
    return None if at == pacing.PAST else at

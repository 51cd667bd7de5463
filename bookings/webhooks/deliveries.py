"""Events become deliveries, are claimed under a lease, and keep what came of each try.

The promise: at least once. A delivery is made in the transaction that takes its event, and stays due until an answer says
that it arrived, its term is over, or its endpoint ends. A claim and an answer are one short transaction each, none of them
open while anything is sent; an answer counts only for the attempt it belongs to, so that whoever was too slow changes
nothing. An endpoint that fails has one try out at a time and rests in between. What is free goes to the tenant that has the
fewest tries out, and each has a share at the most, over all processes: neither many endpoints nor slow ones keep another
tenant waiting.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from bookings.models import Booking, WebhookDelivery
from bookings.webhooks import signing
from bookings.webhooks.egress import Answer
from bookings.webhooks.schedule import Schedule
from ledger import events, journal, shares, sql, telemetry
from ledger.events import Event

# Tries under way. Those of endpoints that fail may come on top: the others of their tenant cannot keep them out.
OUT_AT_ONCE = 4  # of one endpoint
OUT_OF_TENANT = 6
FAILING_OUT_OF_TENANT = 3
TRIES_KEPT = 20
LEASE_TERMS = 6  # of WEBHOOK_SECONDS: a try, and the time until its answer is stored

FAN_OUT = """
INSERT INTO bookings_webhookdelivery (event_id, endpoint_id, booking_id, type, body, due_at)
SELECT e.event, p.id, e.booking, e.type, e.body, ledger_now()
FROM json_to_recordset(%s::json) AS e(event uuid, tenant uuid, booking uuid, type text, body text)
JOIN bookings_webhookendpoint p ON p.tenant_id = e.tenant AND p.disabled_at IS NULL
ON CONFLICT ON CONSTRAINT bookings_webhookdelivery_once DO NOTHING
"""

# Whoever claims does so alone: who counts what is out while another claims would count too little.
CLAIMS_ALONE = "SELECT pg_try_advisory_xact_lock(%s, hashtext('webhook tries'))"
IS_DUE = """w.due_at <= (SELECT ledger_now()) AND (w.lease_until IS NULL OR w.lease_until <= (SELECT ledger_now()))"""
# `turn`: how many tries its tenant has out with this one.
CLAIM = f"""
WITH held AS MATERIALIZED (
    SELECT o.endpoint_id, p.tenant_id, p.failures > 0 AS is_failing
    FROM bookings_webhookdelivery o JOIN bookings_webhookendpoint p ON p.id = o.endpoint_id
    WHERE o.lease_until > (SELECT ledger_now())),
ready AS (
    SELECT d.id, d.due_at, row_number() OVER (PARTITION BY p.tenant_id ORDER BY d.due_at, d.id)
        + (SELECT count(*) FROM held h WHERE h.tenant_id = p.tenant_id AND (h.is_failing OR NOT %(failing)s)) AS turn
    FROM bookings_webhookendpoint p CROSS JOIN LATERAL (
        SELECT w.id, w.due_at FROM bookings_webhookdelivery w
        WHERE w.endpoint_id = p.id AND {IS_DUE}
        ORDER BY w.due_at
        LIMIT greatest(0, CASE WHEN p.failures = 0 THEN %(at_once)s ELSE 1 END - (
            SELECT count(*) FROM held h WHERE h.endpoint_id = p.id))) d
    WHERE p.disabled_at IS NULL AND (p.failures > 0) = %(failing)s
        AND (p.paused_until IS NULL OR p.paused_until <= (SELECT ledger_now()))),
due AS MATERIALIZED (
    SELECT w.id FROM bookings_webhookdelivery w JOIN (
        SELECT id FROM ready WHERE turn <= %(of_tenant)s ORDER BY turn, due_at LIMIT %(limit)s) r ON r.id = w.id
    WHERE {IS_DUE} FOR NO KEY UPDATE OF w SKIP LOCKED)
UPDATE bookings_webhookdelivery w SET attempts = w.attempts + 1,
    lease_until = ledger_now() + make_interval(secs => %(lease)s)
FROM due, bookings_webhookendpoint p WHERE w.id = due.id AND p.id = w.endpoint_id
RETURNING w.id, w.event_id, w.endpoint_id, w.attempts, w.body, p.url, p.failures, ledger_now(),
    ARRAY(SELECT s.secret FROM bookings_webhooksecret s
        WHERE s.endpoint_id = p.id AND (s.ends_at IS NULL OR s.ends_at > ledger_now()) ORDER BY s.id DESC)
"""  # noqa: S608  a constant of this module

# Locks deliveries, then endpoints, each in order of id: two that store at once do not wait for each other in a circle.
LOCK = "SELECT FROM bookings_webhookdelivery WHERE id = ANY(%s::bigint[]) ORDER BY id FOR NO KEY UPDATE"
STORE = """
WITH answer AS (
    SELECT * FROM json_to_recordset(%(answers)s::json)
        AS a(id bigint, n int, ok bool, gone bool, again float8, tried jsonb)),
judged AS (
    SELECT a.*, NOT a.ok AND (a.gone OR ledger_now() + make_interval(secs => a.again)
        > w.term_from + make_interval(secs => %(term)s)) AS ends
    FROM answer a JOIN bookings_webhookdelivery w ON w.id = a.id AND w.attempts = a.n
        AND w.lease_until IS NOT NULL)
UPDATE bookings_webhookdelivery w SET lease_until = NULL,
    tries = jsonb_path_query_array(w.tries || jsonb_build_array(j.tried), %(kept)s::jsonpath),
    delivered_at = CASE WHEN j.ok THEN ledger_now() END,
    given_up_at = CASE WHEN j.ends THEN ledger_now() END,
    due_at = CASE WHEN NOT (j.ok OR j.ends) THEN ledger_now() + make_interval(secs => j.again) END
FROM judged j WHERE w.id = j.id
RETURNING w.id, j.ends, w.term_from
"""
LOCK_ENDPOINTS = """
SELECT FROM bookings_webhookendpoint WHERE id = ANY(%s::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""
# Ended by the server's own word, or because nothing arrived in the whole term of a delivery.
NOTE = """
UPDATE bookings_webhookendpoint p SET
    failures = CASE WHEN n.ok THEN 0 ELSE p.failures + n.failed END,
    succeeded_at = CASE WHEN n.ok THEN ledger_now() ELSE p.succeeded_at END,
    paused_until = CASE WHEN n.ok AND n.rest = 0 THEN NULL ELSE ledger_now() + make_interval(secs => n.rest) END,
    disabled_reason = CASE WHEN p.disabled_at IS NOT NULL THEN p.disabled_reason ELSE n.ends END,
    disabled_at = coalesce(p.disabled_at, CASE WHEN n.ends <> '' THEN ledger_now() END)
FROM (SELECT x.*, CASE WHEN x.gone THEN 'gone'
        WHEN NOT x.ok AND coalesce(q.succeeded_at < x.term_from, x.term_from IS NOT NULL) THEN 'failing' ELSE '' END AS ends
    FROM json_to_recordset(%s::json)
        AS x(id uuid, ok bool, gone bool, failed int, rest float8, term_from timestamptz)
    JOIN bookings_webhookendpoint q ON q.id = x.id) n
WHERE p.id = n.id RETURNING p.id, n.ends
"""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A try that is ours to make: what to send where, signed at `at` by every secret that is valid then."""

    id: int
    event_id: UUID
    endpoint_id: UUID
    n: int
    body: str
    url: str
    failures: int
    at: datetime
    secrets: Sequence[str]

    def headers(self) -> dict[str, str]:
        return signing.headers_of(self.event_id, self.body, at=self.at, secrets_=self.secrets)


@dataclass(frozen=True, slots=True)
class Tried:
    """A try that was made. `seconds` is how long it took."""

    claimed: Claimed
    answer: Answer
    seconds: float

    @property
    def is_gone(self) -> bool:
        return self.answer.status == 410

    def as_json(self) -> dict[str, Any]:
        """The line of the log: nothing that the server wrote."""
        return {
            "at": self.claimed.at.isoformat().replace("+00:00", "Z"),
            "status": self.answer.status,
            "error": self.answer.error,
            "ms": round(self.seconds * 1000),
        }


def fan_out(limit: int) -> int:
    """Make the deliveries of at most so many events; returns how many events there were."""
    with transaction.atomic(durable=True):
        taken = events.take(limit)
        if taken:
            sql.fetch(FAN_OUT, [journal.as_text(_deliverable(taken))])
    return len(taken)


def _deliverable(taken: Sequence[Event]) -> list[dict[str, str]]:
    """Those that are about a booking; a job of another kind is nobody's booking."""
    jobs = [event.job_id for event in taken]
    bookings = dict(Booking.objects.filter(job_id__in=jobs).values_list("job_id", "id"))
    return [
        {
            "event": str(event.id),
            "tenant": str(event.tenant_id),
            "booking": str(bookings[event.job_id]),
            "type": signing.kind_of(event),
            "body": signing.body_of(event, bookings[event.job_id]),
        }
        for event in taken
        if event.job_id in bookings
    ]


def claim(limit: int, *, failing: bool) -> list[Claimed]:
    """At most so many tries, of endpoints that answered last time or of those that did not; none while another claims."""
    if limit <= 0:
        return []
    params = {
        "limit": limit,
        "failing": failing,
        "at_once": OUT_AT_ONCE,
        "of_tenant": FAILING_OUT_OF_TENANT if failing else OUT_OF_TENANT,
        "lease": LEASE_TERMS * settings.WEBHOOK_SECONDS,
    }
    with transaction.atomic(durable=True):
        if not sql.fetch(CLAIMS_ALONE, [shares.ADVISORY_CLASS])[0][0]:
            return []
        return [Claimed(*row) for row in sql.fetch(CLAIM, params)]


def store(tried: Sequence[Tried], schedule: Schedule) -> None:
    """Keep what came of these tries, all of them in one commit. Twice is harmless: an answer ends its lease."""
    if not tried:
        return
    by_id = {one.claimed.id: one for one in tried}
    params = {
        "answers": journal.as_text([_answer(one, schedule) for one in tried]),
        "term": settings.WEBHOOK_TERM_SECONDS,
        "kept": f"$[last - {TRIES_KEPT - 1} to last]",
    }
    with transaction.atomic(durable=True):
        sql.fetch(LOCK, [sorted(by_id)])
        stored = [(by_id[id_], ends, since) for id_, ends, since in sql.fetch(STORE, params)]
        _note([one for one, _, _ in stored], {
            one.claimed.endpoint_id: since for one, ends, since in stored if ends
        }, schedule)  # fmt: skip


def _answer(one: Tried, schedule: Schedule) -> dict[str, Any]:
    asked = one.answer.retry_after
    return {
        "id": one.claimed.id,
        "n": one.claimed.n,
        "ok": one.answer.is_delivered(),
        "gone": one.is_gone,
        "again": schedule.again_after(one.claimed.n, asked).total_seconds(),
        "tried": one.as_json(),
    }


def _note(stored: Sequence[Tried], given_up: dict[UUID, datetime], schedule: Schedule) -> None:
    """What the tries say of their endpoints."""
    of: dict[UUID, list[Tried]] = {}
    for one in stored:
        of.setdefault(one.claimed.endpoint_id, []).append(one)
    sql.fetch(LOCK_ENDPOINTS, [sorted(of)])
    notes = [_standing(id_, found, given_up.get(id_), schedule) for id_, found in of.items()]
    for id_, ends in sql.fetch(NOTE, [journal.as_text(notes)]):
        if ends:
            telemetry.emit("webhook.disabled", level="warning", endpoint=str(id_), reason=ends)


def _standing(
    id_: UUID, tried: Sequence[Tried], given_up: datetime | None, schedule: Schedule
) -> dict[str, Any]:
    failed = [one for one in tried if not one.answer.is_delivered()]
    is_ok = len(failed) < len(tried)
    asked = max((o.answer.retry_after for o in failed if o.answer.retry_after), default=None)
    failures = max(one.claimed.failures for one in tried) + len(failed)
    rests = bool(asked) or not is_ok
    return {
        "id": str(id_),
        "ok": is_ok,
        "gone": any(one.is_gone for one in tried),
        "failed": len(failed),
        "rest": schedule.rest_after(failures, asked).total_seconds() if rests else 0,
        "term_from": given_up.isoformat() if given_up else None,
    }


# --- People ----------------------------------------------------------------------------------------------------------

REPLAY = """
UPDATE bookings_webhookdelivery w SET due_at = ledger_now(), lease_until = NULL, term_from = ledger_now(),
    delivered_at = NULL, given_up_at = NULL
FROM bookings_webhookendpoint p WHERE p.id = w.endpoint_id AND p.disabled_at IS NULL AND w.id = ANY(%s::bigint[])
    AND (w.lease_until IS NULL OR w.lease_until <= ledger_now())
RETURNING w.id
"""


def replay(ids: Iterable[int]) -> set[int]:
    """Make these due again under their own ids; returns which: not those that are out, nor of an endpoint that has ended."""
    assert connection.in_atomic_block, "together with the staff log"
    return {row[0] for row in sql.fetch(REPLAY, [sorted(ids)])}


def page(endpoint_id: UUID, *, before: UUID | None, limit: int) -> list[WebhookDelivery]:
    """Deliveries of an endpoint, the newest event first, older than `before`."""
    found = WebhookDelivery.objects.filter(endpoint_id=endpoint_id)
    if before is not None:
        found = found.filter(event_id__lt=before)
    return list(found.defer("body").order_by("-event_id")[:limit])

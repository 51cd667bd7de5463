"""At least once, signed, under one id; a server that is dead, slow or gone holds up nobody, and is left alone at last."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from django.db import connections
from pytest_django.fixtures import Settings
from standardwebhooks.webhooks import WebhookVerificationError

from bookings.models import WebhookDelivery, WebhookEndpoint
from bookings.webhooks import deliveries, endpoints, sending
from bookings.webhooks.egress import Answer
from ledger import sql, tenancy
from tests import drives, psql
from tests.bookings.conftest import provider, provider_url
from tests.conftest import Roles
from tests.webhooks import tenants
from tests.webhooks.receivers import Receiver, hang, status
from tests.webhooks.tenants import Told

__all__ = ["provider", "provider_url"]
pytestmark = pytest.mark.usefixtures("database")
DAY = timedelta(days=1)
NEXT_SECOND = "SELECT extract(epoch FROM ledger_now()) >= %s::bigint + 1"


def test_a_booking_that_is_made_is_told_signed_and_once(
    told: Told, provider: httpx2.Client, as_role: Roles
) -> None:
    """The whole way, each part under the role of its process."""
    with as_role("api"), tenancy.of(told.tenant.id):
        booking = told.book()
    with as_role("worker"):
        drives.drive_all()
        assert tenants.send() == 1
        assert tenants.send() == 0
    (got,) = told.got
    said = got.verified(told.secret)
    assert said["type"] == "booking.confirmed"
    assert said["data"] == {
        "booking_id": str(booking.id),
        "job_id": str(booking.job_id),
        "state": "confirmed",
        "version": tenants.version(booking.job_id),
    }
    delivery = told.delivery()
    assert got.id == str(delivery.event_id)
    assert delivery.delivered_at is not None
    assert [(t["status"], t["error"]) for t in delivery.tries] == [(204, "")]


def test_parked_gone_on_and_closed_are_three_events_with_the_states_of_clients(told: Told) -> None:
    booking = told.park()
    for act in (tenants.GO_ON, tenants.PARK, tenants.CLOSE):
        sql.fetch(act, [booking.job_id])
    tenants.send()
    said = sorted((got.verified(told.secret) for got in told.got), key=lambda one: one["timestamp"])
    kinds = ["booking.parked", "booking.in_progress", "booking.parked", "booking.closed"]
    assert [one["type"] for one in said] == kinds
    assert len({got.id for got in told.got}) == 4


def test_a_failed_try_is_made_again_under_the_same_id_with_the_same_body_and_a_fresh_signature(
    told: Told,
) -> None:
    told.receiver.says["/hook"] = status(500)
    told.park()
    tenants.send()
    first = told.delivery()
    assert first.due_at is not None
    assert first.delivered_at is None
    told.receiver.says["/hook"] = status(200)
    tenants.make_due()
    with psql.connected() as session:  # timestamps of signatures are whole seconds
        psql.await_true(session, NEXT_SECOND, [told.got[0].headers["webhook-timestamp"]])
    tenants.send()
    one, two = told.got
    assert (one.id, one.body) == (two.id, two.body)
    assert one.headers["webhook-signature"] != two.headers["webhook-signature"]
    assert int(one.headers["webhook-timestamp"]) < int(two.headers["webhook-timestamp"])
    two.verified(told.secret)
    again = told.delivery()
    assert (again.attempts, again.due_at) == (2, None)
    assert [t["status"] for t in again.tries] == [500, 200]


def test_the_wait_doubles_and_is_bounded_and_the_log_too(told: Told, settings: Settings) -> None:
    settings.WEBHOOK_BACKOFF_SECONDS, settings.WEBHOOK_BACKOFF_SECONDS_MAX = 100.0, 800.0
    told.receiver.says["/hook"] = status(500)
    told.park()
    waits = []
    for _ in range(deliveries.TRIES_KEPT + 3):
        tenants.send()
        waits.append(tenants.wait_seconds(told.delivery().id))
        tenants.make_due()
    for n, wait in enumerate(waits):
        whole = min(800, 100 * 2**n)
        assert whole / 2 - 5 <= wait <= whole
    assert told.delivery().attempts == deliveries.TRIES_KEPT + 3
    assert len(told.delivery().tries) == deliveries.TRIES_KEPT


@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_heeded_and_nothing_else_is_sent_there_meanwhile(
    told: Told, code: int
) -> None:
    told.receiver.says["/hook"] = status(code, retry_after="600")
    told.park()
    tenants.send()
    wait = tenants.wait_seconds(told.delivery().id)
    assert 595 <= wait <= 660
    told.park()
    tenants.send()
    assert len(told.got) == 1


def test_410_ends_the_endpoint_and_what_was_open_is_not_sent(told: Told) -> None:
    told.receiver.says["/hook"] = status(410)
    told.park()
    tenants.send()
    assert told.endpoint.disabled_reason == "gone"
    assert told.delivery().given_up_at is not None
    told.park()
    tenants.send()
    assert len(told.got) == 1
    assert len(told.deliveries()) == 1


def test_at_the_end_of_its_term_it_is_given_up_and_an_endpoint_that_never_answered_ends(
    told: Told,
) -> None:
    told.receiver.says["/hook"] = status(500)
    told.park()
    tenants.send()
    tenants.age(2.9 * DAY)
    tenants.make_due()
    tenants.send()
    assert told.delivery().given_up_at is None
    assert told.endpoint.disabled_at is None
    tenants.age(0.1 * DAY)
    tenants.make_due()
    tenants.send()
    assert told.delivery().given_up_at is not None
    assert told.endpoint.disabled_reason == "failing"
    assert len(told.got) == 3


def test_one_event_that_never_arrives_does_not_end_an_endpoint_that_takes_others(
    told: Told,
) -> None:
    told.receiver.says["/hook"] = status(500)
    told.park()
    tenants.send()
    told.receiver.says["/hook"] = status(200)
    told.park()
    tenants.send()
    told.receiver.says["/hook"] = status(500)
    tenants.age(3 * DAY)
    sql.fetch("UPDATE bookings_webhookendpoint SET succeeded_at = ledger_now() - interval '1 day'")
    tenants.make_due()
    tenants.send()
    assert told.deliveries()[0].given_up_at is not None
    assert told.endpoint.disabled_at is None


def test_dead_endpoints_hold_up_nobody(told: Told, receiver: Receiver) -> None:
    """More hang than there are threads for them, each with many events; all of a tenant that works arrive at once."""
    hanging = [Told(told.small, receiver, f"/dead/{n}") for n in range(sending.FAILING_THREADS + 2)]
    sender = sending.Sender()
    for dead in hanging:
        receiver.says[dead.path] = hang
        for _ in range(2):
            dead.park()
    sql.fetch("UPDATE bookings_webhookendpoint SET failures = 1 WHERE id <> %s", [told.endpoint_id])
    mine = [told.park() for _ in range(10)]
    for _ in range(10):
        sender.run(0.3)
        if len(told.got) == len(mine):
            break
    else:
        raise AssertionError(f"{len(told.got)} of {len(mine)}")
    assert all(
        d.lease_until is not None for dead in hanging for d in dead.deliveries() if d.attempts
    )
    receiver.released.set()
    sender.run(10)


def test_an_endpoint_that_hangs_has_few_tries_out_at_once(told: Told) -> None:
    told.receiver.says["/hook"] = hang
    for _ in range(20):
        told.park()
    sender = sending.Sender()
    sender.run(0.3)
    sender.run(0.3)
    assert len(told.got) == deliveries.OUT_AT_ONCE
    told.receiver.released.set()
    sender.run(0)


def test_a_pass_does_not_wait_for_what_is_slow_and_the_next_stores_it(told: Told) -> None:
    told.receiver.says["/hook"] = hang
    told.park()
    sender = sending.Sender()
    assert sender.run(0.1) == 0
    assert told.delivery().lease_until is not None
    assert sender.run(10) == 1
    assert told.delivery().tries[0]["error"] == "timeout"


def test_sweeps_at_once_send_each_once(told: Told) -> None:
    """A pass leaves what it could not claim, because another claimed at that moment, to the next."""
    for _ in range(30):
        told.park()

    def run(_: int) -> int:
        try:
            return tenants.send()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        sent = sum(pool.map(run, range(4)))
    assert sent + tenants.send() == 30
    ids = [got.id for got in told.got]
    assert len(ids) == len(set(ids)) == 30


def test_a_late_answer_of_one_whose_lease_ran_out_changes_nothing(told: Told) -> None:
    told.park()
    deliveries.fan_out(10)
    (late,) = deliveries.claim(10, failing=False)
    sql.fetch("UPDATE bookings_webhookdelivery SET lease_until = ledger_now()")
    (again,) = deliveries.claim(10, failing=False)
    assert (late.n, again.n) == (1, 2)
    schedule = sending._schedule()
    deliveries.store([deliveries.Tried(late, Answer(410), 0.1)], schedule)
    assert told.endpoint.disabled_at is None
    assert told.delivery().lease_until is not None
    answered = [deliveries.Tried(again, Answer(200), 0.1)]
    deliveries.store(answered, schedule)
    deliveries.store(answered, schedule)  # the reply to the first commit may have been lost
    assert len(told.delivery().tries) == 1
    assert told.delivery().delivered_at is not None


def test_a_tenant_is_told_of_its_own_only(told: Told, receiver: Receiver) -> None:
    other = Told(told.small, receiver, "/other")
    mine, theirs = told.park(), other.park()
    tenants.send()
    assert [json.loads(g.body)["data"]["booking_id"] for g in told.got] == [str(mine.id)]
    assert [json.loads(g.body)["data"]["booking_id"] for g in other.got] == [str(theirs.id)]
    with pytest.raises(WebhookVerificationError):
        told.got[0].verified(other.secret)


def test_after_a_rotation_both_secrets_verify_for_a_day(told: Told) -> None:
    second = endpoints.rotate(told.endpoint)
    told.park()
    tenants.send()
    for secret in (told.secret, second):
        told.got[0].verified(secret)
    sql.fetch("UPDATE bookings_webhooksecret SET ends_at = ends_at - interval '1 day'")
    told.park()
    tenants.send()
    told.got[1].verified(second)
    with pytest.raises(WebhookVerificationError):
        told.got[1].verified(told.secret)


def test_an_address_is_judged_at_every_try(told: Told, settings: Settings) -> None:
    """What was allowed when the endpoint was made."""
    settings.WEBHOOK_NETWORKS = []
    told.park()
    tenants.send()
    assert told.got == []
    assert told.delivery().tries[0]["error"] == "refused_address"


def test_a_disabled_endpoint_gets_nothing_more(told: Told) -> None:
    told.park()
    deliveries.fan_out(10)
    endpoints.disable(told.endpoint, "by its tenant")
    told.park()
    tenants.send()
    assert told.got == []
    assert len(told.deliveries()) == 1


def test_the_body_of_an_answer_is_nowhere_in_the_rows(told: Told) -> None:
    told.receiver.says["/hook"] = status(500, b"canary-body", x_canary="canary-header")
    told.park()
    tenants.send()
    rows = repr([*WebhookDelivery.objects.values(), *WebhookEndpoint.objects.values()])
    assert "canary" not in rows


def test_claims_use_an_index_and_an_idle_pass_reads_no_table(told: Told) -> None:
    booking = told.park()
    tenants.send()
    sql.fetch(
        "INSERT INTO ledger_event (job_id, tenant_id, state, direction, seq, pending)"
        " SELECT %s, %s, 'parked', 'forward', n, false FROM generate_series(1, 20000) n",
        [booking.job_id, told.tenant.id],
    )
    sql.fetch(
        "INSERT INTO bookings_webhookdelivery (event_id, endpoint_id, booking_id, type, body, delivered_at)"
        " SELECT id, %s, %s, 'booking.parked', '{}', ledger_now() FROM ledger_event WHERE seq > 0 AND NOT pending"
        " ON CONFLICT DO NOTHING",
        [told.endpoint_id, booking.id],
    )
    sql.fetch("ANALYZE ledger_event, bookings_webhookdelivery")
    params: dict[str, Any] = {
        "limit": 16,
        "failing": False,
        "at_once": 4,
        "of_tenant": 6,
        "lease": 60,
    }
    plans = sql.fetch(f"EXPLAIN {deliveries.CLAIM}", params)
    plans += sql.fetch("EXPLAIN SELECT id FROM ledger_event WHERE pending ORDER BY id LIMIT 500")
    text = "\n".join(row[0] for row in plans)
    assert "Seq Scan on bookings_webhookdelivery" not in text, text
    assert "Seq Scan on ledger_event" not in text, text

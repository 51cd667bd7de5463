"""A process that sends, killed with -9 at a named gap or with its request on the wire, and what the next one makes of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from ledger import crashpoints, sql
from tests.acceptance import addresses
from tests.webhooks import tenants
from tests.webhooks.receivers import Handler, status
from tests.webhooks.tenants import Told

ROOT = Path(__file__).resolve().parents[2]
ON_THE_WIRE = "the wire"
# How often the server is told in all: the kill came before the send, or after it and before what came of it was kept.
TOLD = {
    "webhook.before": 1,
    "webhook.claimed": 1,
    ON_THE_WIRE: 2,
    "webhook.sent": 2,
    "webhook.after": 1,
}
PROGRAM = """
import django
django.setup()
from bookings.webhooks import sending
sending.Sender().run(10)
"""


def survive(told: Told, point: str) -> None:
    """One event, its sender killed there: it is told at least once, under one id, and each time with the same body."""
    told.park()
    armed = {crashpoints.ARM_VARIABLE: f"{point}=kill"} if point != ON_THE_WIRE else {}
    env = {**os.environ, "DATABASE_URL": addresses.database_url(), "AMENDS_ROLE": "worker", **armed}
    env |= {"WEBHOOK_HTTP": "1", "WEBHOOK_NETWORKS": "127.0.0.0/8"}
    env |= {"WEBHOOK_PORTS": str(told.receiver.port), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, env={**env, "DJANGO_SETTINGS_MODULE": "config.settings"}
    ) as process:
        if point == ON_THE_WIRE:
            told.receiver.says[told.path] = lambda handler: shoot(handler, process.pid)
        assert process.wait(25) == -signal.SIGKILL
    told.receiver.says.clear()
    is_claimed = point in ("webhook.claimed", "webhook.sent", ON_THE_WIRE)
    if is_claimed:  # and nobody else's until its lease is over
        before = len(told.got)
        assert tenants.send() == 0
        assert len(told.got) == before
        sql.fetch("UPDATE bookings_webhookdelivery SET lease_until = ledger_now()")
    tenants.send()
    assert told.delivery().delivered_at is not None
    assert len(told.got) == TOLD[point]
    assert {(got.id, got.body) for got in told.got} == {
        (str(told.delivery().event_id), told.got[0].body)
    }
    for got in told.got:
        got.verified(told.secret)


def shoot(handler: Handler, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    handler.close_connection = True
    status(200)(handler)

"""`manage.py bench submit`: what the promises of a submission cost, as a ratio to a view that makes none.

One gunicorn as `manage.py up` runs it, the same clients for both, one after the other in short rounds, so that what else
the machine does meets both; medians. Second witness: as many rows as answers, or there is no figure.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from django.apps import apps
from django.core.management.base import CommandError

from bookings import hotel_books
from bookings.models import ApiKey
from config import bench_views, guardian, processes, programs, supervisor
from ledger import sql

BUSY_MAX = 0.7  # of one core: clients busier than this may be what is measured
GRACE_SECONDS = 60.0
PATHS = {"submit": "/v1/bookings", "bare": bench_views.PATH}
COUNTS = {
    "submit": "SELECT count(*) FROM bookings_booking WHERE tenant_id = %s",
    "bare": f"SELECT count(*) FROM {bench_views.TABLE} WHERE tenant_id = %s",  # noqa: S608  a constant
}


@dataclass(slots=True)
class Side:
    """What was measured of one view."""

    rates: list[float] = field(default_factory=list)
    busy: float = 0.0


def measure(*, rounds: int, seconds: float, clients: int) -> dict[str, Any]:
    """Interleaved rounds against one server; the first of each side warms up and is not counted."""
    order = {"seconds": seconds, "clients": clients, "body": _stay()}
    sides = {name: Side() for name in PATHS}
    with _table(), _server() as address:
        for n in range(rounds + 1):
            for name, side in sides.items():
                found = _round(name, {**order, **address})
                if n:
                    side.rates.append(found["answers"] / found["seconds"])
                    side.busy = max(side.busy, found["busy"])
    return result(sides) | {"rounds": rounds, "seconds": seconds, "clients": clients}


def in_words(result: Mapping[str, Any]) -> str:
    return (
        f"submitted {result['submit_per_s']}/s, a bare view with one INSERT {result['bare_per_s']}/s: "
        f"ratio {result['ratio']} ({result['rounds']} rounds of {result['seconds']:g} s each, interleaved, "
        f"{result['clients']} clients, which used {result['clients_busy']:.0%} of a core)"
    )


def _stay() -> dict[str, Any]:
    hotel = hotel_books.load()
    arrival = hotel.first_arrival.isoformat()
    return {"hotel": hotel.hotel, "room_type": "A", "arrival": arrival, "nights": 2, "guest": "Ada"}


@contextmanager
def _table() -> Iterator[None]:
    sql.fetch(bench_views.DROP)
    sql.fetch(bench_views.CREATE)
    try:
        yield
    finally:
        sql.fetch(bench_views.DROP)


@contextmanager
def _server() -> Iterator[dict[str, Any]]:
    """The API as `manage.py up` runs it; nothing drives what it accepts."""
    env = {**os.environ, bench_views.VARIABLE: "1", "OPEN_JOBS_MAX": "0"}
    with processes.Ending() as ending, supervisor.Stack(env, ending=ending) as stack:
        try:
            stack.start_one(programs.API)
            stack.wait_ready(programs.API)
        except supervisor.StackError as error:
            raise CommandError(str(error)) from error
        found = urlsplit(stack.api_url)
        yield {"host": found.hostname, "port": found.port}


def _round(name: str, order: Mapping[str, Any]) -> dict[str, Any]:
    """One round of a new tenant, so that no limit on a key or a tenant is what is measured."""
    tenant = apps.get_model("ledger", "Tenant").objects.create(name=f"bench-{uuid4()}")
    _, key = ApiKey.objects.create_key(tenant=tenant, name="bench")
    found = _ask({"path": PATHS[name], "key": key, **order})
    if found["failures"]:
        raise CommandError(f"{name}: {found['failures'][0]}")
    if (rows := sql.fetch(COUNTS[name], [tenant.id])[0][0]) != found["answers"]:
        raise CommandError(f"{name}: {found['answers']} answers, {rows} rows")
    return found


def _ask(order: Mapping[str, Any]) -> dict[str, Any]:
    watch = guardian.Guardian()  # ends the clients even if this process is killed
    command = [sys.executable, "-m", "config.bench_client"]
    limit = order["seconds"] + GRACE_SECONDS
    try:
        process = watch.start(
            command, cwd=supervisor.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            printed, _ = process.communicate(json.dumps(order).encode(), limit)
        finally:
            processes.end(process, signal.SIGKILL, GRACE_SECONDS)
    finally:
        watch.dismiss()
    result: dict[str, Any] = json.loads(printed or '{"failures": ["the clients said nothing"]}')
    return result


def result(sides: Mapping[str, Side]) -> dict[str, Any]:
    submit, bare = (statistics.median(sides[name].rates) for name in ("submit", "bare"))
    busy = max(side.busy for side in sides.values())
    if busy > BUSY_MAX:
        raise CommandError(f"the clients used {busy:.0%} of a core: they may be what was measured")
    return {
        "submit_per_s": round(submit, 1),
        "bare_per_s": round(bare, 1),
        "ratio": round(submit / bare, 3),
        "clients_busy": round(busy, 2),
    }

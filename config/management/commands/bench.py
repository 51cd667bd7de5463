"""`manage.py bench drain`: how fast a real Celery prefork worker drains sagas that are already submitted.
`manage.py bench submit`: how fast the API accepts bookings, beside a view without promises (config.bench_submit).

A drain is counted as peers count it (DBOS, procrastinate, a Celery chain): from the first job seen finished until none is
left, fsync on. Quote it only beside a peer's figure of the same run, as a ratio: machines are noisy.
"""

import json
import os
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser
from typing import Any, override
from uuid import uuid4

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from config import bench_saga, bench_submit, guardian
from ledger import sql, submission
from ledger.models import Tenant

SUBMIT_BATCH = 200
POLL_SECONDS = 0.02
LIMIT_SECONDS = 240.0
LEFT = "SELECT count(*) FROM ledger_job WHERE tenant_id = %s AND finished_at IS NULL"
# Asked fifty times a second beside the drain: by the partial indexes, so that the question does not slow the answer.
ANY_LEFT = """
SELECT EXISTS (SELECT 1 FROM ledger_job WHERE owner IS NOT NULL)
    OR EXISTS (SELECT 1 FROM ledger_job WHERE state = 'queued' AND lane = 'forward')
    OR EXISTS (SELECT 1 FROM ledger_job WHERE state = 'waiting' AND lane = 'forward')
"""


class Command(BaseCommand):
    help = (
        "Measure: `bench drain` submits JOBS sagas of three steps and times a real worker draining them; "
        "`bench submit` posts bookings, which it leaves, to a real server, and to a bare view in turn."
    )

    @override
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("what", choices=["drain", "submit"])
        parser.add_argument("--jobs", type=int, default=5_000)
        parser.add_argument(
            "--latency", type=float, default=0.0, help="mean seconds of one step's call"
        )
        parser.add_argument("--processes", type=int, default=2)
        parser.add_argument("--slots", type=int, default=64)
        parser.add_argument("--rounds", type=int, default=7, help="of submit: measured, per view")
        parser.add_argument("--seconds", type=float, default=2.0, help="of submit: one round")
        parser.add_argument("--clients", type=int, default=8, help="of submit: connections")
        parser.add_argument("--json", action="store_true", help="one object on standard output")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        measure = {"drain": self._drained, "submit": self._submitted}[options["what"]]
        result, words = measure(options)
        self.stdout.write(json.dumps(result) if options["json"] else words)

    def _submitted(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        if options["rounds"] < 1 or options["clients"] < 1 or options["seconds"] <= 0:
            raise CommandError("--rounds and --clients are at least 1, --seconds more than 0")
        self._migrate()
        wanted = {name: options[name] for name in ("rounds", "seconds", "clients")}
        result = bench_submit.measure(**wanted)
        return result, bench_submit.in_words(result)

    def _drained(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        if (
            options["jobs"] < 2
            or options["processes"] < 1
            or options["slots"] < 1
            or options["latency"] < 0
        ):
            raise CommandError(
                "--jobs is at least 2, --processes and --slots at least 1, --latency not negative"
            )
        self._migrate()
        tenant = Tenant.objects.create(name=f"bench-{uuid4()}")
        submit = _submit(tenant, options["jobs"])
        watch = guardian.Guardian()  # ends the worker even if this process is killed
        worker = _worker(watch, options)
        try:
            drain = _drain(tenant, worker)
        finally:
            worker.terminate()
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait(10)
            watch.dismiss()
        result = {
            "drain_per_s": round(drain, 1),
            "submit_per_s": round(submit, 1),
            "jobs": options["jobs"],
            "latency_s": options["latency"],
            "processes": options["processes"],
            "slots": options["slots"],
        }
        return result, _in_words(result)

    def _migrate(self) -> None:
        call_command("migrate", verbosity=0)


def _submit(tenant: Tenant, jobs: int) -> float:
    """Submissions per second, committed in batches of SUBMIT_BATCH."""
    started = time.perf_counter()
    for first in range(0, jobs, SUBMIT_BATCH):
        with transaction.atomic():
            for i in range(first, min(first + SUBMIT_BATCH, jobs)):
                submission.submit(
                    tenant_id=tenant.id,
                    key=str(i),
                    saga=bench_saga.trip,
                    request={"trip": i},
                    input={},
                )
    return jobs / (time.perf_counter() - started)


def _worker(watch: guardian.Guardian, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    env = {
        **os.environ,
        "AMENDS_ROLE": "worker",
        "SLOTS": str(options["slots"]),
        "LOG_LEVEL": "ERROR",
        bench_saga.LATENCY_VARIABLE: str(options["latency"]),
    }
    command = [sys.executable, "-m", "celery", "-A", "config.celery", "worker", "-Q", "forward"]
    command += ["-c", str(options["processes"]), "--without-gossip", "--without-mingle"]
    return watch.start(command, env=env, stdout=subprocess.DEVNULL, stderr=sys.stderr)


def _drain(tenant: Tenant, worker: subprocess.Popen[bytes]) -> float:
    """Jobs per second from the first one seen finished until none is left."""
    pause, limit = threading.Event(), time.perf_counter() + LIMIT_SECONDS
    at_start = left = _left(tenant)
    while left == at_start:
        left = _left(tenant)
        _still_running(worker, limit)
        pause.wait(POLL_SECONDS / 4)
    started, first = time.perf_counter(), left
    while sql.fetch(ANY_LEFT)[0][0]:
        pause.wait(POLL_SECONDS)
        _still_running(worker, limit)
    seconds = time.perf_counter() - started
    if (left := _left(tenant)) > 0:
        raise CommandError(f"{left} jobs are parked or stranded")
    return first / seconds


def _left(tenant: Tenant) -> int:
    count: int = sql.fetch(LEFT, [tenant.id])[0][0]
    return count


def _still_running(worker: subprocess.Popen[bytes], limit: float) -> None:
    if worker.poll() is not None:
        raise CommandError(f"the worker ended with status {worker.returncode}")
    if time.perf_counter() > limit:
        connection.close()
        raise CommandError(f"not drained after {LIMIT_SECONDS:g} s")


def _in_words(result: dict[str, Any]) -> str:
    return (
        f"drained {result['drain_per_s']} sagas/s, submitted {result['submit_per_s']}/s: {result['jobs']} jobs, "
        f"{result['latency_s']} s a call, {result['processes']} processes x {result['slots']} slots"
    )

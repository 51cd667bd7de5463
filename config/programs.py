"""How each process of the stack is run: its command, its environment, and the sign that it is
ready.

Kept here: each process gets the role that it has in production, and the sandbox, the second
witness, is given no address of ours, so that it cannot reach our books even by mistake.
"""

import http.client
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

API, BEAT, SANDBOX = "api", "beat", "sandbox"
WORKER, COMPENSATION, SWEEPS = "worker", "worker-compensation", "worker-sweeps"
WORKERS = {
    WORKER: "forward",
    COMPENSATION: "compensation",
    SWEEPS: "sweeps,webhooks",  # children that drive for a minute must not keep a sweep waiting
}
START_ORDER = (SANDBOX, API, *WORKERS, BEAT)
STOP_ORDER = (BEAT, API, *WORKERS, SANDBOX)
WORKER_READY = re.compile(r"worker\.ready|\w@\S+ ready\.")
ADDRESSES = (
    "DATABASE_URL",
    "API_DATABASE_URL",
    "WORKER_DATABASE_URL",
    "RETENTION_DATABASE_URL",
    "BROKER_URL",
)


@dataclass(slots=True)
class Place:
    """Where a stack runs. The sandbox chooses its port at its first start and keeps it."""

    workdir: Path
    listener: int
    api_port: int
    concurrency: int
    sandbox_port: int = 0

    @property
    def metrics(self) -> Path:
        """Where the processes of this stack keep their counters, so that /metrics of the API sums them up."""
        found = self.workdir / "metrics"
        found.mkdir(exist_ok=True)
        return found

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def sandbox_url(self) -> str:
        return f"http://127.0.0.1:{self.sandbox_port}"


def kind_of(name: str) -> str:
    """What a process is: `worker.2` is a second `worker`, with a node name and a schedule of its own."""
    return name.partition(".")[0]


def command(name: str, place: Place, children: int = 0) -> list[str]:
    """`children` of a worker, where not as many as its kind has."""
    kind = kind_of(name)
    celery = [sys.executable, "-m", "celery", "-A", "config.celery", "-q"]  # no banner between JSON
    quiet = ["--without-gossip", "--without-mingle"]
    match kind:
        case "sandbox":
            store = str(place.workdir / "sandbox.sqlite")
            program = [sys.executable, "-m", "bookings.sandbox", "--store", store]
            return [*program, "--port", str(place.sandbox_port)]
        case "api":
            program = [sys.executable, "-m", "gunicorn", "config.wsgi"]
            settings = ["--config", "python:config.gunicorn", "--workers", "1", "--threads", "8"]
            return [*program, "--bind", f"fd://{place.listener}", *settings]
        case "worker" | "worker-compensation" | "worker-sweeps":
            # Two at least where jobs are driven: Celery may take five seconds to fork for a pool that has lost its last.
            children = children or {WORKER: place.concurrency, COMPENSATION: 2, SWEEPS: 1}[kind]
            lanes = ["-Q", WORKERS[kind], "-c", str(children)]
            return [*celery, "worker", *lanes, "-n", f"{name}@%h", *quiet]
        case "beat":
            return [*celery, "beat", "--schedule", str(place.workdir / f"{name}-schedule")]
        case _:
            raise ValueError(f"the stack has no process {name!r}, only {', '.join(START_ORDER)}")


def environment(name: str, place: Place, env: Mapping[str, str]) -> dict[str, str]:
    env = {
        **env,
        "TMPDIR": str(place.workdir),
    }  # what a killed process leaves there goes with the stack
    if kind_of(name) == SANDBOX:
        return {key: value for key, value in env.items() if key not in ADDRESSES}
    roles = {API: "api", BEAT: "worker", **dict.fromkeys(WORKERS, "worker")}
    providers = {"PAYMENT_URL": place.sandbox_url, "TICKET_URL": place.sandbox_url}
    return {
        **env,
        **(providers if place.sandbox_port else {}),
        "AMENDS_ROLE": roles.get(kind_of(name), "owner"),
        "LOG_LEVEL": "INFO",  # readiness is read from the log
        "PROMETHEUS_MULTIPROC_DIR": str(place.metrics),
    }


def readiness(name: str, place: Place, output: Callable[[], str]) -> Callable[[], bool]:
    """The question to ask until it is answered with yes; `output` is what this start has logged so far."""
    if kind_of(name) == SANDBOX:
        return lambda: _note_sandbox_port(place, output())
    if name == API:
        return lambda: _is_alive(place.api_port)
    if kind_of(name) == BEAT:
        return lambda: any(place.workdir.glob(f"{name}-schedule*"))
    return lambda: WORKER_READY.search(output()) is not None


def _note_sandbox_port(place: Place, output: str) -> bool:
    for line in output.splitlines():
        if line.startswith('{"port"'):
            place.sandbox_port = int(json.loads(line)["port"])
            return True
    return False


def _is_alive(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()

"""What must hold at every request that the provider gets, and at every effect in its book."""

from datetime import datetime

from ledger import canonical, saga
from recovery.simulation.invariants import BACKWARD, FORWARD, Scene
from recovery.simulation.mirror import Job, at
from recovery.simulation.provider import KEY_LIFETIME, Service

SLACK = 50_000  # microseconds: a due time this near is now


def check_request(scene: Scene, kind: str, service: Service, call: saga.Call) -> None:
    """The provider looks at what it is asked."""
    operation, violate = call.operation_id, scene.chronicle.violate
    job = scene.mirror.jobs.get(str(call.job_id))
    step, direction = service.name.removesuffix(".undo"), BACKWARD if service.sign < 0 else FORWARD
    if operation != f"{call.job_id}:{step}:{direction}":
        violate("R7", f"{operation} is not the operation's name")
        return
    attempts = [a for a in job.attempts_of(step, direction) if a["n"] == call.n] if job else []
    if not attempts:
        violate("R2", f"{operation} {call.n} came without a committed attempt")
    elif attempts[0]["fingerprint"] != "\\x" + canonical.fingerprint(call.arguments).hex():
        violate("R3", f"{operation} came with other arguments than its attempt")
    if job is not None and attempts and call.n == job.attempts_of(step, direction)[-1]["n"]:
        # An earlier attempt's request that only now comes out of a thread that hung was decided on before.
        _check_patience(scene, job, kind, operation, (step, direction))
    entry = scene.provider.book.get(operation)
    if kind == "call" and entry is not None and entry.first_at is not None and service.keyed:
        forgotten_at = entry.first_at + KEY_LIFETIME * 1e6
        asked = any(
            r.operation_id == operation and r.kind != "call" for r in scene.provider.requests
        )
        if scene.clock.micros > forgotten_at and not asked:
            violate("R9", f"{operation} was sent again past its key's life")


def _is_told(job: Job, kind: str, key: tuple[str, str], since: datetime) -> bool:
    """Whether the job's owner knows of an answer: its own, or one that the journal had when it took over. What a worker
    that had lost the job was told cannot be obeyed by the next; nor what nobody lived to store.
    """
    table = "receipt" if kind == "call" else "sighting"
    return any(
        (r["step"], r["direction"], r.get("kind", kind)) == (*key, kind)
        and r["outcome"] == "throttled"
        and (at(r["at"]) or since) >= since
        and (number < job.read[table] or r["fence"] == job.row["fence"])
        for number, r in enumerate(getattr(job, table))
    )


def _check_patience(
    scene: Scene, job: Job, kind: str, operation: str, key: tuple[str, str]
) -> None:
    """R10: what the provider asked for is never undercut, but for the slack of due times."""
    until, since = scene.provider.not_before.pop((operation, kind), (0, 0))
    if not until or not _is_told(job, kind, key, scene.clock.time(since)):
        return
    scene.chronicle.count("throttle_obeyed")
    if scene.clock.micros < until - SLACK:
        scene.chronicle.violate("R10", f"{operation} did not wait as it was asked to")


def check_effect(scene: Scene, operation: str) -> None:
    """The provider looks at its book after an effect."""
    entry = scene.provider.book[operation]
    if len(entry.effects) > 1:
        scene.chronicle.violate("R1", f"{operation} was applied {len(entry.effects)} times")
    job, step, _ = operation.split(":")
    both = [scene.provider.book.get(f"{job}:{step}:{d}") for d in (FORWARD, BACKWARD)]
    net = sum(e.amount_minor for side in both if side for e in side.effects)
    most = max((e.amount_minor for side in both if side for e in side.effects), default=0)
    if not 0 <= net <= most:
        scene.chronicle.violate("O4", f"{operation}: the net is {net}")

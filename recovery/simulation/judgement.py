"""What must hold when a history has come to rest: the database, the provider's book and what clients were told, compared.

A parked job has named what is not known, so its effects are left to the person who looks; every other job must agree
with the book to the cent.
"""

from collections.abc import Callable, Iterator, Sequence

from ledger import sql
from ledger.saga import Direction, Local
from recovery.simulation.clients import Order
from recovery.simulation.invariants import BACKWARD, ENDED, FORWARD, Scene, unsettled
from recovery.simulation.mirror import JOURNAL, Job, at
from recovery.simulation.provider import REQUEST_LIFETIME

JobCheck = Callable[[Scene, Job], Iterator[str]]
AT_REST: dict[str, JobCheck] = {}
REFUSED_STATES = ("refused", "compensated")


def at_rest(name: str) -> Callable[[JobCheck], JobCheck]:
    def register(check: JobCheck) -> JobCheck:
        AT_REST[name] = check
        return check

    return register


def judge(scene: Scene, orders: Sequence[Order]) -> None:
    """The whole database, at a history's end."""
    for job in scene.mirror.jobs.values():
        for name, check in AT_REST.items():
            for wrong in check(scene, job):
                scene.chronicle.violate(name, f"{job.id} ({job.row['state']}): {wrong}")
    _judge_journal(scene)
    _judge_submissions(scene, orders)


@at_rest("V1")
def it_ended_or_says_why(_scene: Scene, job: Job) -> Iterator[str]:
    if job.row["state"] not in ENDED | {"parked"}:
        yield f"still {job.row['state']} in lane {job.row['lane']}, due {job.row['due_at']}"


@at_rest("R5")
def receipts_agree_with_the_book(scene: Scene, job: Job) -> Iterator[str]:
    if job.row["parked_reason"] == "contradiction":
        return
    for operation in _operations(scene, job):
        step, direction = operation
        entry = scene.provider.book.get(f"{job.id}:{step}:{direction}")
        effects = len(entry.effects) if entry else 0
        final = job.final(step, direction)
        if final == "confirmed" and effects != 1:
            yield f"{step}:{direction} is confirmed, the provider has {effects} effects"
        if final == "refused" and effects:
            yield f"{step}:{direction} is refused, and the provider did it"
        if final is None and effects and not unsettled(job, step, direction):
            yield f"{step}:{direction} is proved unsent, and the provider did it"


@at_rest("R10")
def no_request_without_an_attempt(scene: Scene, job: Job) -> Iterator[str]:
    for step, direction in _operations(scene, job):
        name = f"{job.id}:{step}:{direction}"
        calls = [r for r in scene.provider.requests if (r.operation_id, r.kind) == (name, "call")]
        if len(calls) > len(job.attempts_of(step, direction)):
            yield f"{name}: {len(calls)} requests of {len(job.attempts_of(step, direction))} attempts"


@at_rest("O2")
def confirmed_is_all_done(scene: Scene, job: Job) -> Iterator[str]:
    if job.row["state"] != "confirmed":
        return
    for step in scene.definition(job).steps:
        if not job.confirmed(step.name, FORWARD):
            yield f"{step.name} is not confirmed"
        if job.attempts_of(step.name, BACKWARD):
            yield f"{step.name} was undone"
    if _held(job) not in (None, "secured"):
        yield f"its hold is {_held(job)}"


@at_rest("O3")
def compensated_is_net_zero(scene: Scene, job: Job) -> Iterator[str]:
    if job.row["state"] not in REFUSED_STATES:
        return
    for step in scene.definition(job).steps:
        both = [scene.provider.book.get(f"{job.id}:{step.name}:{d}") for d in (FORWARD, BACKWARD)]
        net = sum(e.amount_minor for side in both if side for e in side.effects)
        if net:
            yield f"{step.name}: the net is {net}"
    if _held(job) in ("held", "secured"):
        yield f"its hold is {_held(job)}"


@at_rest("O5")
def every_done_step_is_undone(scene: Scene, job: Job) -> Iterator[str]:
    state = job.row["state"]
    if state not in REFUSED_STATES:
        return
    done = [s.name for s in scene.definition(job).steps if job.confirmed(s.name, FORWARD)]
    for step in scene.definition(job).steps:
        if unsettled(job, step.name, FORWARD):
            yield f"{step.name} is in doubt"
        if step.name in done and not job.confirmed(step.name, BACKWARD):
            yield f"{step.name} is not undone"
        if step.name not in done and job.attempts_of(step.name, BACKWARD):
            yield f"{step.name} was undone and never done"
    if (state == "compensated") != bool(done):
        yield f"it did {done}"


@at_rest("O8")
def nothing_is_sent_after_the_end(scene: Scene, job: Job) -> Iterator[str]:
    if job.row["state"] not in ENDED:
        return
    ended = at(job.checkpoint[-1]["at"]) if job.checkpoint else None
    assert ended is not None, "the end of a job writes a checkpoint"
    limit = scene.clock.at(ended) + REQUEST_LIFETIME * 1e6
    for request in scene.provider.requests:
        is_its = request.operation_id.startswith(job.id) and request.kind == "call"
        if is_its and request.at > limit:
            yield f"{request.operation_id} was sent after it had ended"


def _judge_journal(scene: Scene) -> None:
    """R6: no row that was ever seen has changed or gone."""
    for table in JOURNAL:
        count = sql.fetch(f"SELECT count(*) FROM ledger_{table}")[0][0]  # noqa: S608  names of a list
        seen = sum(len(getattr(job, table)) for job in scene.mirror.jobs.values())
        if count != seen:
            scene.chronicle.violate("R6", f"{table}: {seen} rows were seen, {count} are there")
    fresh = type(scene.mirror)()
    fresh.look()
    for job_id, job in scene.mirror.jobs.items():
        now = fresh.jobs.get(job_id)
        if now is None or any(getattr(now, t) != getattr(job, t) for t in JOURNAL):
            scene.chronicle.violate("R6", f"{job_id}: its journal is not what it was")


def _judge_submissions(scene: Scene, orders: Sequence[Order]) -> None:
    """S1, S2 and S3: one job a key, whatever was asked how often, and nothing that was acknowledged is lost."""
    rows = sql.fetch("SELECT tenant_id, key, job_id FROM ledger_submission")
    stored = {(tenant, key): job for tenant, key, job in rows}
    jobs = {str(job) for job in stored.values()}
    if len(jobs) != len(rows) or jobs != set(scene.mirror.jobs):
        scene.chronicle.violate("S1", f"{len(rows)} keys, {len(scene.mirror.jobs)} jobs")
    for order in orders:
        told, job = set(order.told), stored.get((order.tenant, order.key))
        if len(told) > 1:
            scene.chronicle.violate("S3", f"{order.key} was told {len(told)} jobs")
        if told and job not in told:
            scene.chronicle.violate("S2", f"{order.key} was told {told}, there is {job}")


def _operations(scene: Scene, job: Job) -> Iterator[tuple[str, str]]:
    """The remote operations of a job."""
    for step in scene.definition(job).steps:
        for direction in Direction:
            if not isinstance(step.effect_of(direction), Local):
                yield step.name, direction.value


def _held(job: Job) -> str | None:
    rows = sql.fetch(
        "SELECT state FROM sim.hold WHERE operation_id = %s", [f"{job.id}:hold:forward"]
    )
    return rows[0][0] if rows else None

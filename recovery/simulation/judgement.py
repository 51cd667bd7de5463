"""What must hold when a history has come to rest: the database, the provider's book and what clients were told, compared.

A parked job has named what is not known, so its effects are left to the person who looks; every other job must agree
with the book to the cent, and what a client was told with what became of it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ledger import sql
from ledger.saga import Direction, Effect, Local
from recovery.simulation.clients import Order
from recovery.simulation.invariants import (
    BACKWARD,
    ENDED,
    FORWARD,
    Scene,
    perhaps_sent,
    unsettled,
)
from recovery.simulation.mirror import FINAL, JOURNAL, Job, Row, at
from recovery.simulation.provider import REQUEST_LIFETIME

JobCheck = Callable[[Scene, Job], Iterator[str]]
AT_REST: list[tuple[str, JobCheck]] = []
REFUSED_STATES = ("refused", "compensated")


def at_rest(name: str) -> Callable[[JobCheck], JobCheck]:
    def register(check: JobCheck) -> JobCheck:
        AT_REST.append((name, check))
        return check

    return register


def judge(scene: Scene, orders: Sequence[Order]) -> None:
    """The whole database, at a history's end."""
    for job in scene.mirror.jobs.values():
        for name, check in AT_REST:
            for wrong in check(scene, job):
                scene.chronicle.violate(name, f"{job.id} ({job.row['state']}): {wrong}")
    _judge_journal(scene)
    _judge_submissions(scene, orders)
    _judge_orders(scene, orders)
    _judge_money(scene, orders)


@at_rest("V1")
def it_ended_or_says_why(_scene: Scene, job: Job) -> Iterator[str]:
    if job.row["state"] not in ENDED | {"parked"}:
        yield f"still {job.row['state']} in lane {job.row['lane']}, due {job.row['due_at']}"


@at_rest("R5")
def receipts_agree_with_the_book(scene: Scene, job: Job) -> Iterator[str]:
    if job.row["parked_reason"] == "contradiction":
        yield f"contradicted by a provider that keeps its promises: {job.row['parked_detail']}"
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


@at_rest("R5")
def sightings_are_heeded(scene: Scene, job: Job) -> Iterator[str]:
    """Nothing that decides, or contradicts, is left lying."""
    may_go_on = job.row["state"] in ENDED or job.row["parked_reason"] == "unknown_outcome"
    for seen in job.sighting if may_go_on else ():
        final = job.final(seen["step"], seen["direction"])
        if final is None and seen["outcome"] == "refused" and job.row["state"] in ENDED:
            continue  # proved unsent; whoever had lost the job told the provider to refuse it all the same
        if seen["outcome"] in FINAL and seen["outcome"] != final:
            yield f"{seen['step']}:{seen['direction']} is {final}, a {seen['kind']} says {seen['outcome']}"


@at_rest("R10")
def budgets_are_kept(scene: Scene, job: Job) -> Iterator[str]:
    for step in scene.definition(job).steps:
        for direction in Direction:
            used = sum(_uses_budget(job, a) for a in job.attempts_of(step.name, direction.value))
            if used > step.attempts_of(direction):
                yield f"{step.name}:{direction} used {used} of {step.attempts_of(direction)} attempts"


def _uses_budget(job: Job, attempt: Row) -> bool:
    """Without a receipt, unknown, or failed to connect."""
    key = (attempt["step"], attempt["direction"], attempt["n"])
    for receipt in job.receipt:
        if (receipt["step"], receipt["direction"], receipt["n"]) == key:
            if receipt["outcome"] == "not_sent":
                return not receipt["evidence"].get("released")
            return bool(receipt["outcome"] == "unknown")
    return True


@at_rest("G4")
def parked_only_when_nothing_helps(scene: Scene, job: Job) -> Iterator[str]:
    """A provider that can be asked, or told to refuse, settles whatever has no sender that may be alive."""
    if job.row["parked_reason"] != "unknown_outcome":
        return
    if not job.row["parked_detail"]:
        yield "nobody can tell which operation is in doubt"
        return
    step, direction = job.row["parked_detail"].split(":")[1:3]
    effect = scene.effect(job, step, direction)
    attempts = {a["n"]: a for a in perhaps_sent(job, step, direction)}
    rows = [
        r for r in (*job.receipt, *job.sighting) if (r["step"], r["direction"]) == (step, direction)
    ]
    back = {r["n"] for r in rows if not r["evidence"].get("abandoned") and _is_back(r, attempts)}
    asked = [
        r
        for r in rows
        if r.get("kind") in ("probe", "tombstone")
        and r["outcome"] not in ("not_landed", "throttled")
    ]
    budget = scene.step(job, step).attempts_of(Direction(direction))
    buries = isinstance(effect, Effect) and effect.tombstone and direction != job.row["direction"]
    asks = isinstance(effect, Effect) and effect.probe and attempts.keys() <= back
    if (asks or buries) and len(asked) < budget:
        yield f"{step}:{direction} could have been settled"


def _is_back(row: Row, attempts: dict[int, Row]) -> bool:
    """Its sender has returned, under the fence of its attempt, or is known to be dead."""
    attempt = attempts.get(row["n"])
    if attempt is None or row["fence"] not in (None, attempt["fence"]):
        return False
    is_dead = row.get("kind") == "sender_lost" and row["evidence"].get("how") == "owner_dead"
    return bool(is_dead or row.get("kind", "late") == "late")


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


def _judge_orders(scene: Scene, orders: Sequence[Order]) -> None:
    """O2: what was done is what was asked for, to the cent. S2: who was told that it is cancelled is not charged."""
    for order in orders:
        job = scene.mirror.jobs.get(str(order.told[0])) if order.told else None
        if job is None or job.row["state"] != "confirmed":
            continue
        if order.is_cancelled:
            scene.chronicle.violate("S2", f"{job.id}: {order.key} was cancelled, and is confirmed")
        wanted = _money(order)
        for step, direction in _operations(scene, job):
            entry = scene.provider.book.get(f"{job.id}:{step}:{direction}")
            done = [e.money() for e in entry.effects] if entry else []
            if done != ([wanted] if direction == FORWARD else []):
                what = f"{job.id}: {step}:{direction} did {done}, {order.key} asked for {wanted}"
                scene.chronicle.violate("O2", what)


def _judge_money(scene: Scene, orders: Sequence[Order]) -> None:
    """O13: the book is what the confirmed orders cost, and what is in review; nothing else."""
    expected: Counter[str] = Counter()
    jobs = scene.mirror.jobs
    for order in orders:
        job = jobs.get(str(order.told[0])) if order.told else None
        if job is not None and job.row["state"] == "confirmed":
            amount, currency = _money(order)
            steps = sum(direction == FORWARD for _, direction in _operations(scene, job))
            expected[currency] += amount * steps
    for operation, entry in scene.provider.book.items():
        job = jobs.get(operation.split(":")[0])
        for amount, currency in (e.money() for e in entry.effects):
            if job is None or job.row["state"] != "parked":
                expected[currency] -= amount
    if any(expected.values()):
        scene.chronicle.violate("O13", f"the orders' cost less the book is {dict(expected)}")


def _money(order: Order) -> tuple[int, str]:
    return order.request["amount_minor"], order.request["currency"]


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

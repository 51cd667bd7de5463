"""What must hold at every commit, for each job that it touched; and at every request and effect at the provider.

The names are those of the project's list of invariants. Each check is a function over one change and says what is wrong,
or nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from ledger import canonical, saga, states
from recovery.simulation.chronicle import Chronicle
from recovery.simulation.mirror import FINAL, Change, Job, Mirror, Row, at
from recovery.simulation.processes import Process
from recovery.simulation.provider import KEY_LIFETIME, REQUEST_LIFETIME, Provider, Service
from recovery.simulation.virtual import VirtualClock

FORWARD, BACKWARD = "forward", "backward"
LONGEST_WAIT = timedelta(hours=1)  # what a provider may ask for
SLACK = 50_000  # microseconds: a due time this near is now
FENCED = ("attempt", "receipt", "checkpoint", "resolution")
ENDED = frozenset(str(state) for state in states.ENDED)


@dataclass(slots=True)
class Scene:
    """Everything that a check may look at. `acting`: the process at work; None for sweeps, clients and people."""

    chronicle: Chronicle
    clock: VirtualClock
    mirror: Mirror
    provider: Provider
    definitions: Mapping[tuple[str, int], saga.Saga]
    acting: Process | None = None

    def definition(self, job: Job) -> saga.Saga:
        return self.definitions[job.row["saga"], job.row["version"]]

    def step(self, job: Job, name: str) -> saga.Step:
        found = self.definition(job).step(name)
        assert found is not None, f"{name} is no step of this saga"
        return found

    def is_local(self, job: Job, row: Row) -> bool:
        effect = self.step(job, row["step"]).effect_of(saga.Direction(row["direction"]))
        return isinstance(effect, saga.Local)


Check = Callable[[Scene, Change], Iterator[str]]
AT_COMMIT: dict[str, Check] = {}


def at_commit(name: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        AT_COMMIT[name] = check
        return check

    return register


def check_commit(scene: Scene) -> None:
    """Look at what was committed just now."""
    for change in scene.mirror.look():
        scene.chronicle.note("commit", change.job.id, change.told())
        for name, check in AT_COMMIT.items():
            for wrong in check(scene, change):
                scene.chronicle.violate(name, f"{change.job.id}: {wrong}")


def perhaps_sent(job: Job, step: str, direction: str) -> list[Row]:
    """The attempts of an operation that nothing proves unsent."""
    proved = {
        row["n"]
        for row in (*job.receipt, *job.sighting)
        if (row["step"], row["direction"]) == (step, direction)
        and row["outcome"] in ("not_sent", "throttled")
        and row.get("kind", "late") == "late"
    }
    return [a for a in job.attempts_of(step, direction) if a["n"] not in proved]


def unsettled(job: Job, step: str, direction: str) -> bool:
    """It may have had an effect which no receipt settles."""
    return job.final(step, direction) is None and bool(perhaps_sent(job, step, direction))


# --- Leases and fences -----------------------------------------------------------------------------------------------


@at_commit("L1")
def fence_grows(_scene: Scene, change: Change) -> Iterator[str]:
    before = change.before or {"fence": 0, "state": ""}
    claimed = before["state"] == "queued" and change.after["state"] == "running"
    if change.after["fence"] < before["fence"] + claimed:
        yield f"fence {before['fence']} -> {change.after['fence']}"


@at_commit("L2")
def only_the_owner_writes(scene: Scene, change: Change) -> Iterator[str]:
    before, after = change.before, change.after
    for row in change.rows(*FENCED):
        if row["fence"] != after["fence"]:
            yield f"a row of fence {row['fence']} under {after['fence']}"
    if before is None or before["state"] != "running":
        return
    moved = after["state"] != "running"
    if scene.acting is None:
        if moved and after["fence"] <= before["fence"]:
            yield "taken from its owner without authority"
    elif moved or change.rows(*FENCED):
        held = scene.acting.holds(change.job.id)
        if held is None or held.fence != before["fence"]:
            yield f"{scene.acting.name} wrote under {held and held.fence}, the fence is {before['fence']}"


@at_commit("L5")
def leases_are_of_the_databases_clock(scene: Scene, change: Change) -> Iterator[str]:
    until, before = at(change.after["lease_until"]), change.before or {}
    if until is None or change.after["lease_until"] == before.get("lease_until"):
        return
    if until != scene.clock.now() + timedelta(seconds=settings.LEASE_SECONDS):
        yield f"at {scene.clock.now()} until {until}"


@at_commit("L6")
def only_the_owner_renews(scene: Scene, change: Change) -> Iterator[str]:
    before, after = change.before, change.after
    if before is None or before["state"] != "running" or after["state"] != "running":
        return
    if after["lease_until"] == before["lease_until"]:
        return
    held = scene.acting.holds(change.job.id) if scene.acting else None
    if held is None or held.fence != before["fence"]:
        yield "renewed by somebody who does not hold it"


@at_commit("L7")
def a_lease_is_taken_only_when_free(_scene: Scene, change: Change) -> Iterator[str]:
    before = change.before
    if before is None or before["owner"] is None or change.after["owner"] is None:
        return
    if change.after["owner"] != before["owner"]:
        yield f"claimed under the lease of {before['owner']}"


# --- Operations and receipts -----------------------------------------------------------------------------------------


@at_commit("R3")
def one_fingerprint(_scene: Scene, change: Change) -> Iterator[str]:
    for row in change.rows("attempt"):
        first = change.job.attempts_of(row["step"], row["direction"])[0]
        if row["fingerprint"] != first["fingerprint"]:
            yield f"{row['step']}:{row['direction']} {row['n']} has other arguments"


@at_commit("R6")
def one_final_receipt(_scene: Scene, change: Change) -> Iterator[str]:
    settled = [(r["step"], r["direction"]) for r in change.job.receipt if r["outcome"] in FINAL]
    if len(settled) != len(set(settled)):
        yield f"settled twice: {settled}"


@at_commit("R8")
def refused_only_with_evidence(_scene: Scene, change: Change) -> Iterator[str]:
    for row in change.rows("receipt"):
        kind = row["evidence"].get("seen_by")
        if kind is None or row["outcome"] != "refused":
            continue
        words = [
            s
            for s in change.job.sighting
            if (s["step"], s["direction"]) == (row["step"], row["direction"])
            and s["outcome"] in ("refused", "not_landed")
        ]
        if not words:
            yield f"{row['step']}:{row['direction']} refused by {kind}, which nobody said"
        elif kind == "late_probe" and not _came_late(change.job, row, words):
            yield f"{row['step']}:{row['direction']} refused by a probe that came too early"


def _came_late(job: Job, row: Row, words: list[Row]) -> bool:
    attempts = perhaps_sent(job, row["step"], row["direction"])
    sent = at(attempts[-1]["at"]) if attempts else None
    if sent is None:
        return True
    landed = sent + timedelta(seconds=REQUEST_LIFETIME)
    return any(said > landed for word in words if (said := at(word["at"])))


@at_commit("R11")
def only_definite_answers_settle(scene: Scene, change: Change) -> Iterator[str]:
    for row in change.rows("receipt"):
        if row["outcome"] not in FINAL or "seen_by" in row["evidence"]:
            continue
        if scene.is_local(change.job, row):
            continue
        operation = f"{change.job.id}:{row['step']}:{row['direction']}"
        told = scene.provider.told.get((operation, row["n"]), set())
        if row["outcome"] not in told:
            yield f"{operation} {row['n']} is {row['outcome']}, the caller heard {sorted(told)}"


# --- Outcome ---------------------------------------------------------------------------------------------------------


@at_commit("O6")
def undone_in_reverse(scene: Scene, change: Change) -> Iterator[str]:
    names = [step.name for step in scene.definition(change.job).steps]
    for row in change.rows("attempt"):
        if row["direction"] != BACKWARD:
            continue
        for later in names[names.index(row["step"]) + 1 :]:
            if unsettled(change.job, later, FORWARD):
                yield f"{row['step']} undone while {later} is in doubt"
            is_done = change.job.confirmed(later, FORWARD)
            if is_done and not change.job.attempts_of(later, BACKWARD):
                yield f"{row['step']} undone before {later}"


@at_commit("O7")
def no_forward_attempt_going_backward(scene: Scene, change: Change) -> Iterator[str]:
    if change.before is None or change.before["direction"] != BACKWARD:
        return
    for row in change.rows("attempt"):
        effect = scene.step(change.job, row["step"]).effect
        learns = isinstance(effect, saga.Effect) and effect.resend_to_learn
        if row["direction"] == FORWARD and not learns:
            yield f"{row['step']} sent forward"


@at_commit("O8")
def ended_is_ended(_scene: Scene, change: Change) -> Iterator[str]:
    if change.before is None or change.before["state"] not in ENDED:
        return
    if change.rows(*FENCED):
        yield f"rows after {change.before['state']}"
    if change.after["parked_reason"] != "contradiction" and change.after != change.before:
        yield f"{change.before['state']} -> {change.after['state']}"


@at_commit("O10")
def nothing_goes_back_past_the_pivot(scene: Scene, change: Change) -> Iterator[str]:
    index = scene.definition(change.job).pivot_index()
    if index is None or change.after["direction"] != BACKWARD:
        return
    pivot = scene.definition(change.job).steps[index].name
    if change.job.confirmed(pivot, FORWARD):
        yield "backward with a confirmed pivot"
    turned = change.before is not None and change.before["direction"] == FORWARD
    if turned and unsettled(change.job, pivot, FORWARD):
        yield "turned back while the pivot was in doubt"


@at_commit("O11")
def parked_says_why(_scene: Scene, change: Change) -> Iterator[str]:
    row = change.after
    if row["state"] == "parked" and not (row["parked_reason"] and row["parked_detail"]):
        yield f"parked as {row['parked_reason']!r} {row['parked_detail']!r}"


# --- The state machine -----------------------------------------------------------------------------------------------


@at_commit("C1")
def moves_along_edges(_scene: Scene, change: Change) -> Iterator[str]:
    was = change.before["state"] if change.before else None
    now = change.after["state"]
    if was is None:
        if now != "waiting":
            yield f"born {now}"
    elif was != now and (was, now) not in states.edges():
        yield f"{was} -> {now}"


@at_commit("C2")
def sequence_without_gaps(_scene: Scene, change: Change) -> Iterator[str]:
    was = change.before["seq"] if change.before else 0
    rows = change.rows(*FENCED)
    if change.after["seq"] != was + bool(rows):
        yield f"seq {was} -> {change.after['seq']} with {len(rows)} rows"
    if any(row["seq"] != change.after["seq"] for row in rows):
        yield f"rows of another seq than {change.after['seq']}"


@at_commit("C3")
def settled_only_with_receipt(_scene: Scene, change: Change) -> Iterator[str]:
    for row in change.rows("checkpoint"):
        for operation, outcome in row["data"]["settled"].items():
            step, _, direction = operation.rpartition(":")
            if change.job.final(step, direction) != outcome:
                yield f"the checkpoint says {operation} is {outcome}, no receipt does"


@at_commit("C5")
def nothing_is_orphaned(scene: Scene, change: Change) -> Iterator[str]:
    row = change.after
    due = at(row["due_at"])
    assert due is not None, "every job has a due time"
    if row["state"] == "waiting" and due > scene.clock.now() + LONGEST_WAIT:
        yield f"waits until {due}"
    if row["state"] in ("waiting", "queued") and row["lane"] not in states.JOB_LANES:
        yield f"in lane {row['lane']}, which nobody drives"
    if row["state"] == "queued" and row["rank"] is None:
        yield "queued without a rank"


# --- At the provider -------------------------------------------------------------------------------------------------


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
    if job is not None:
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

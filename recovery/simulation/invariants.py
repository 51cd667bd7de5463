"""What must hold at every commit, for each job that it touched.

The names are those of the project's list of invariants. Each check is a function over one change and says what is wrong,
or nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings

from ledger import checkpoints, leases, saga, states
from recovery.simulation.chronicle import Chronicle
from recovery.simulation.mirror import FINAL, Change, Job, Mirror, Row, at
from recovery.simulation.processes import Process
from recovery.simulation.provider import PROBE_LAG, REQUEST_LIFETIME, Provider
from recovery.simulation.virtual import VirtualClock

FORWARD, BACKWARD = "forward", "backward"
LONGEST_WAIT = timedelta(hours=1)  # what a provider may ask for
FENCED = ("attempt", "receipt", "checkpoint", "resolution")
ENDED = frozenset(str(state) for state in states.ENDED)


@dataclass(slots=True)
class Scene:
    """Everything that a check may look at. `acting`: the process at work; None for sweeps, clients and people. `dead`:
    owners that are no more.
    """

    chronicle: Chronicle
    clock: VirtualClock
    mirror: Mirror
    provider: Provider
    definitions: Mapping[tuple[str, int], saga.Saga]
    acting: Process | None = None
    dead: set[str] = field(default_factory=set)

    def definition(self, job: Job) -> saga.Saga:
        return self.definitions[job.row["saga"], job.row["version"]]

    def step(self, job: Job, name: str) -> saga.Step:
        found = self.definition(job).step(name)
        assert found is not None, f"{name} is no step of this saga"
        return found

    def effect(self, job: Job, step: str, direction: str) -> saga.Effect | saga.Local:
        return self.step(job, step).effect_of(saga.Direction(direction))

    def is_local(self, job: Job, row: Row) -> bool:
        return isinstance(self.effect(job, row["step"], row["direction"]), saga.Local)


Check = Callable[[Scene, Change], Iterator[str]]
AT_COMMIT: list[tuple[str, Check]] = []


def at_commit(name: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        AT_COMMIT.append((name, check))
        return check

    return register


def check_commit(scene: Scene) -> None:
    """Look at what was committed just now."""
    for change in scene.mirror.look():
        scene.chronicle.note("commit", change.job.id, change.told())
        for name, check in AT_COMMIT:
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
def a_lease_is_taken_only_when_free(scene: Scene, change: Change) -> Iterator[str]:
    before, now = change.before or {}, change.after["owner"]
    if (was := before.get("owner")) is None or now == was:
        return
    until = at(before["lease_until"])
    if now is not None:
        yield f"claimed under the lease of {was}"
    elif scene.acting is None and was not in scene.dead and until and until > scene.clock.now():
        yield f"ended by a sweep, {was} lives and holds it until {until}"


@at_commit("V4")
def a_receipt_clears_suspicion(_scene: Scene, change: Change) -> Iterator[str]:
    after = change.after
    if change.rows("receipt") and (after["suspect"], after["losses"], after["strikes"]) != (
        False,
        0,
        0,
    ):
        yield f"suspected after a receipt: {after['losses']} losses, {after['strikes']} strikes"
    if after["parked_reason"] == "worker_lost" and after["strikes"] < leases.STRIKES_MAX:
        yield f"given up after {after['strikes']} strikes"


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
def refused_only_with_evidence(scene: Scene, change: Change) -> Iterator[str]:
    """By somebody who said so; or by a probe that was asked when nothing could land any more."""
    for row in change.rows("receipt"):
        kind, operation = row["evidence"].get("seen_by"), (row["step"], row["direction"])
        if kind is None or row["outcome"] != "refused":
            continue
        name = f"{row['step']}:{row['direction']}"
        words = [s for s in change.job.sighting if (s["step"], s["direction"]) == operation]
        if kind != "late_probe":
            if not any((s["kind"], s["outcome"]) == (kind, "refused") for s in words):
                yield f"{name} refused by a {kind}, which never said so"
            continue
        attempts = {a["n"] for a in perhaps_sent(change.job, *operation)}
        for wrong in _lacks_proof(scene, change.job, operation, attempts):
            yield f"{name} refused by a probe{wrong}"


@at_commit("R8")
def sent_again_only_with_a_key_or_proof(scene: Scene, change: Change) -> Iterator[str]:
    for row in change.rows("attempt"):
        operation = (row["step"], row["direction"])
        effect = scene.effect(change.job, *operation)
        if isinstance(effect, saga.Local) or effect.key_lifetime is not None:
            continue
        earlier = {a["n"] for a in perhaps_sent(change.job, *operation)} - {row["n"]}
        for wrong in _lacks_proof(scene, change.job, operation, earlier) if earlier else ():
            yield f"{row['step']}:{row['direction']} sent again after a probe{wrong}"


def _lacks_proof(
    scene: Scene, job: Job, operation: tuple[str, str], attempts: set[int]
) -> Iterator[str]:
    """That none of these can land any more: against what the wire really did. When each sender really could have sent, and
    whether one still can.
    """
    name = ":".join((job.id, *operation))
    words = [s for s in job.sighting if (s["step"], s["direction"]) == operation]
    senders, effect = scene.provider.senders, scene.effect(job, *operation)
    late_suffices = isinstance(effect, saga.Effect) and effect.late_probe_suffices
    if senders.may_send(name, attempts) and not late_suffices:
        yield ", and a sender was still there"
    asked = [
        scene.clock.at(datetime.fromisoformat(s["evidence"]["asked_at"]))
        for s in words
        if (s["kind"], s["outcome"]) == ("probe", "not_landed")
    ]
    sent = senders.last_at(name, attempts)
    clear = (sent or 0) + round((REQUEST_LIFETIME + PROBE_LAG) * 1e6)
    if max(asked, default=0) <= clear:
        yield " that came too early"


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
        for operation, outcome in checkpoints.outcomes_of(row["format"], row["data"]).items():
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

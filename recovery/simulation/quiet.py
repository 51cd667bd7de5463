"""The end of a history: faults stop, everything goes on until nothing moves, and what is then is judged."""

from datetime import datetime, timedelta
from functools import partial

from django.db import transaction

from ledger import outcomes, retention
from recovery import sweeps
from recovery.invariants import check, named
from recovery.simulation import database, judgement, stock
from recovery.simulation.clients import Order
from recovery.simulation.histories import History
from recovery.simulation.invariants import ENDED, FORWARD
from recovery.simulation.mirror import at
from recovery.simulation.processes import Process

PASSES_MAX = 150
STAGES_MAX = 400
ACTIVE = ("waiting", "queued", "running")
TERM = timedelta(days=1)
REST_SECONDS = 400  # from the last fault until every job has ended or is parked


def come_to_rest(history: History) -> None:
    """No more faults: whatever was begun comes to its end, or to a person."""
    history.chronicle.note("healed")
    healed_at = history.clock.micros
    history.is_healed = history.provider.is_healed = True
    history.faults.heal()
    for order in history.clients.waiting():
        history.act(f"submit {order.key}", partial(history.clients.submit, order))
    for _ in range(PASSES_MAX):
        history.happen()
        _check_rest(history, healed_at)
        history._revive()  # noqa: SLF001  the scheduler's own step
        _sweep(history)
        has_news = False
        for process in history.processes:
            _drive(history, process)
            if process.run is None and process.wire is not None and process.wire.has_news():
                has_news = history.act(f"{process.name} collects", process.collect, process)
        soonest = history.next_at()
        if soonest is None and not (has_news or history.tickets or _is_runnable(history)):
            history.act("reconcile", sweeps.reconcile)
            if not _is_runnable(history):
                return
        if not any(process.can_go_on() for process in history.processes) and soonest:
            history.let_pass((soonest - history.clock.micros) / 1e6)


def judge(history: History) -> None:
    with history.line.quiet():
        judgement.judge(history.scene, history.clients.orders)
        _ask_the_queries(history)
    for job in history.scene.mirror.jobs.values():
        history.chronicle.count(f"state:{job.row['state']}")
        if job.row["state"] == "parked":
            history.chronicle.count(f"parked:{job.row['parked_reason']}")
        if job.row["turned_by"] == "deadline":
            history.chronicle.count("deadline_passed")
        for row in job.receipt:
            if row["evidence"].get("seen_by") in ("probe", "late_probe"):
                found = "found" if row["outcome"] == "confirmed" else "not_found"
                history.chronicle.count(f"{found}_by_probe")
                if found == "found" and _came_late(
                    history, f"{job.id}:{row['step']}:{row['direction']}"
                ):
                    history.chronicle.count("late_call_neutralised")


def _ask_the_queries(history: History) -> None:
    """The named queries of `manage.py invariants`, too: they and the checks here were written apart."""
    given = named.parameters(history.scene.definitions.values())
    with database.acting_as("owner"), transaction.atomic():
        for invariant in check.ALL:
            for id_ in check.breaks(invariant, given)[1]:
                history.chronicle.violate(invariant.id, f"{id_}: {invariant.statement}")


def _came_late(history: History, operation: str) -> bool:
    entry = history.provider.book.get(operation)
    return entry is not None and any(effect.is_late for effect in entry.effects)


def _check_rest(history: History, healed_at: int) -> None:
    """V1: it does not take for ever. Calls that nobody waits for may still be on their way."""
    took = (history.clock.micros - healed_at) / 1e6
    busy = [j.id for j in history.scene.mirror.jobs.values() if j.row["state"] in ACTIVE]
    if busy and took > REST_SECONDS:
        history.chronicle.violate("V1", f"{busy} do not rest {REST_SECONDS} s after the last fault")


def retain(history: History) -> None:
    """D1: after the term, what has ended goes, and nothing else; its key stays used."""
    jobs = history.scene.mirror.jobs
    ended = {id_ for id_, job in jobs.items() if job.row["state"] in ENDED}
    history.let_pass(2 * TERM.total_seconds())
    with database.acting_as("retention"):
        history.act("retain", lambda: retention.retain(TERM))
    with history.line.quiet():
        gone = history.scene.mirror.missing()
    if gone != ended:
        wrong = sorted(gone ^ ended)
        history.chronicle.violate("D1", f"removed or left against the rule: {wrong}")
    for order in history.clients.orders:
        if str(order.told[0]) in gone:
            _ask_again(history, order)


def _ask_again(history: History, order: Order) -> None:
    try:
        history.clients.submit(order)
    except outcomes.SubmissionGone:
        history.chronicle.count("key_gone")
    else:
        history.chronicle.violate("S8", "a key was taken again after retention")


def _sweep(history: History) -> None:
    """What beat does, where it can find something: reclaim, deadlines, evidence, rings."""
    now = history.clock.now()
    history.act("expire holds", stock.expire)
    jobs = history.scene.mirror.jobs.values()
    expired = [j for j in jobs if (until := at(j.row["lease_until"])) and until < now]
    if expired:
        history.act("reclaim", sweeps.reclaim)
        for job in expired:
            until = at(job.row["lease_until"])
            if until is not None and until < now:
                history.chronicle.violate("C5", f"{job.id}: no reclaim takes its expired lease")
    if any(j.row["deadline_at"] and j.row["direction"] == "forward" for j in jobs):
        history.act("deadlines", sweeps.expire_deadlines)
        _check_deadlines(history, now)
    if any(j.sighting for j in jobs if j.row["state"] in ENDED | {"parked"}):
        history.act("reconcile", sweeps.reconcile)
    if not history.tickets and _is_runnable(history):
        history.act("ring", sweeps.ring)


def _check_deadlines(history: History, now: datetime) -> None:
    """V7: a deadline that had passed before the sweep, with no pivot sent, has turned its job back."""
    for job in history.scene.mirror.jobs.values():
        if job.row["state"] not in ACTIVE or job.row["direction"] != FORWARD:
            continue
        pivot = history.scene.definition(job).pivot_index()
        name = history.scene.definition(job).steps[pivot].name if pivot is not None else ""
        deadline = at(job.row["deadline_at"])
        if deadline and deadline < now and not job.attempts_of(name, FORWARD):
            history.chronicle.violate("V7", f"{job.id}: its deadline passed at {deadline}")


def _is_runnable(history: History) -> bool:
    """A worker could take a job now."""
    now = history.clock.now()
    return any(
        job.row["state"] == "queued"
        or (job.row["state"] == "waiting" and (due := at(job.row["due_at"])) and due <= now)
        for job in history.scene.mirror.jobs.values()
    )


def _drive(history: History, process: Process) -> None:
    """Let a process go on until it waits for an answer, or has nothing left."""
    if process.run is None and history.tickets and not process.is_dead:
        process.start(history.tickets.pop(0))
    for _ in range(STAGES_MAX):
        if not process.can_go_on():
            return
        history.go_on(process)
    history.chronicle.violate("V1", f"{process.name} turns without end")

"""PostgreSQL is lost, and an asynchronous standby that had not heard of the newest commits takes its place.

This is a limit, and the drill shows where it lies: what was acknowledged in that tail is gone, and the clients' journal says
which. Kept here: the loss is seen, and nothing else is lost. Each effect that the provider has made and we have no record of
is named by the comparison with its books; a job that survived repeats its operations under their old ids, so that nothing is
charged twice; and each comes to rest. `judge_loss` is pure: a test plants each kind of wrong and sees it named.

Workers go on from memory through a failover. What they know of a call whose attempt was in the tail, their job's next owner
takes from them as from any witness: there are receipts then without an attempt, and each must say whose word it is.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from recovery import books
from recovery.drills import judge
from recovery.drills import place as names
from recovery.drills.judge import Witnesses
from recovery.drills.load import Told
from recovery.drills.place import Standby
from recovery.drills.run import Drill, Run

BEFORE, AFTER, CLIENTS = 8, 40, 6
ACKNOWLEDGED_MIN, EFFECTS_MIN, TAIL_SECONDS = 8, 8, 20.0
KEPT = "tail"
OPEN = """
SELECT count(*) FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s) AND j.finished_at IS NULL AND j.state <> 'parked'
"""
CONFIRMED_SINCE = """
SELECT r.job_id::text || ':' || r.step || ':' || r.direction FROM ledger_receipt r
WHERE r.outcome = 'confirmed' AND r.at > %s
"""


# What the invariant R2 finds; and whether it is a witness's word, about a job of this drill.
UNATTEMPTED = """
SELECT r.job_id::text || ':' || r.step || ':' || r.direction, r.evidence ? 'seen_by' AND starts_with(s.key, %s)
FROM ledger_receipt r JOIN ledger_submission s ON s.job_id = r.job_id
WHERE NOT EXISTS (SELECT 1 FROM ledger_attempt a
    WHERE (a.job_id, a.step, a.direction, a.n) = (r.job_id, r.step, r.direction, r.n) AND a.seq <= r.seq)
"""


@dataclass(frozen=True, slots=True)
class Tail:
    """What was known when the primary was lost: the bookings that clients had been told of, by key. And how many effects
    the provider's books had once no request of that time could be on its way any more.
    """

    told: Mapping[str, str]
    effects: int


@dataclass(frozen=True, slots=True)
class Loss:
    """`bookings` are acknowledged and gone, by key. `reported` are operations of the provider's that we have no record of,
    each named by the comparison with its books. `wrong` is what the limit does not cover.
    """

    bookings: Mapping[str, str]
    reported: Sequence[str]
    wrong: Sequence[str]


def play(run: Run) -> None:
    with run.place.standby() as standby:
        run.note("an asynchronous standby follows PostgreSQL")
        with futures.ThreadPoolExecutor(CLIENTS, thread_name_prefix="client") as pool:
            told, posting = _lose(run, standby, pool)
    for one in posting:
        one.result()
    run.seen["failovers"] += 1
    beyond = run.place.periods.call + run.place.periods.request_lifetime
    run.place.wait_until(lambda: False, beyond)
    run.kept[KEPT] = Tail(told, len(_entries(run)))
    run.wait("every survivor at rest", lambda: _open(run) == 0, run.place.periods.to_rest)
    _tell(run, _loss(run, _collect(run)))


def _lose(
    run: Run, standby: Standby, pool: futures.Executor
) -> tuple[dict[str, str], list[futures.Future[Told]]]:
    """Cut the standby off with jobs half done, book more, lose the primary; what clients had been told by then."""
    stays = run.place.stays(BEFORE + AFTER)  # their rooms are not to be lost
    early = _post(run, pool, "before", stays[:BEFORE])
    run.wait("jobs half done", lambda: all(one.done() for one in early))
    standby.cut_off()
    known = {one.key for one in run.load.accepted()}
    late = _post(run, pool, "after", stays[BEFORE:])
    run.wait("a tail", lambda: _is_long(run, known), TAIL_SECONDS)
    before = {entry["operation_id"] for entry in _entries(run)}
    fault = run.watch.fault("primary lost")
    standby.lose_primary()
    told = {one.key: one.booking for one in run.load.accepted()}  # nothing can be added now
    standby.promote()
    run.note("the standby cut off, PostgreSQL lost, the standby promoted at its address")
    run.wait("an operation repeated under its key", lambda: bool(_repeated(run, fault.at, before)))
    run.seen["repeated_under_key"] += len(_repeated(run, fault.at, before))
    return told, early + late


def _post(
    run: Run, pool: futures.Executor, what: str, stays: Sequence[Mapping[str, Any]]
) -> list[futures.Future[Told]]:
    return [
        pool.submit(run.load.book, f"{what}-{number}", stay) for number, stay in enumerate(stays)
    ]


def _is_long(run: Run, known: set[str]) -> bool:
    """Enough was acknowledged since the standby was cut off, and enough done about it."""
    new = {one.booking for one in run.load.accepted() if one.key not in known}
    done = sum(entry["subject"] in new for entry in _entries(run))
    return len(new) >= ACKNOWLEDGED_MIN and done >= EFFECTS_MIN


def _repeated(run: Run, since: Any, before: set[str]) -> set[str]:
    """Operations that the provider had done before, and that were confirmed to us only afterwards."""
    return before & {row[0] for row in run.place.sql(CONFIRMED_SINCE, [since])}


def _open(run: Run) -> int:
    count: int = run.place.sql(OPEN, [run.load.prefix])[0][0]
    return count


def _tell(run: Run, loss: Loss) -> None:
    of_lost = [one for one in _effects(run) if one.subject in set(loss.bookings.values())]
    run.seen["acknowledged_lost"] += len(loss.bookings)
    run.seen["effects_reported"] += len(loss.reported)
    run.seen["effects_of_survivors_reported"] += len(loss.reported) - len(of_lost)
    run.seen["receipts_by_witness"] += len(_unattempted(run))
    keys = ", ".join(sorted(key.removeprefix(run.load.prefix) for key in loss.bookings))
    run.note(f"lost tail: {len(loss.bookings)} bookings acknowledged and gone: {keys}")
    subjects = len({one.subject for one in of_lost})
    run.note(
        f"reported: {len(of_lost)} effects of {subjects} of them and {len(loss.reported) - len(of_lost)} of survivors, by"
        f" operation, as {', '.join(loss.reported[:2]) or 'none'}"
    )


# --- The judgement ---------------------------------------------------------------------------------------------------


def judge_loss(
    tail: Tail,
    found: Witnesses,
    effects: Sequence[books.Effect],
    receipts: Sequence[books.Receipt],
    named: Sequence[str],
) -> Loss:
    """`found` is about the bookings that are there; `effects` are all of the provider's, in its order, and `receipts` ours
    for them: what anybody can compare who has both. `named` are the differences that the comparison found.
    """
    there = {job.booking for job in found.jobs}
    lost = {key: booking for key, booking in tail.told.items() if booking not in there}
    known = {receipt.operation_id for receipt in receipts}
    unknown = dict.fromkeys(e.operation_id for e in effects if e.operation_id not in known)
    of_the_tail = {e.operation_id for e in effects[: tail.effects]} & unknown.keys()
    reported = [one for one in unknown if any(text.startswith(f"{one}: ") for text in named)]
    times = Counter(effect.operation_id for effect in effects)
    wrong = [
        f"{one}: done without a record of ours, and not reported"
        for one in unknown
        if one not in reported
    ]
    wrong += [
        f"{one}: done after the failover, without a record of ours"
        for one in unknown
        if one not in of_the_tail
    ]
    wrong += [f"{one}: done {count} times" for one, count in times.items() if count > 1]
    wrong += judge.judge(_survivors(found, lost, of_the_tail))
    return Loss(lost, reported, list(dict.fromkeys(wrong)))  # fmt: skip


def _survivors(found: Witnesses, lost: Mapping[str, str], of_the_tail: set[str]) -> Witnesses:
    """Judged like any other, but for what the provider did about them in the tail and what was told of the lost."""
    wrong = [
        text for text in found.journal.wrong if not any(text.startswith(f"{key}: ") for key in lost)
    ]
    told = {key: one for key, one in found.journal.told.items() if key not in lost}
    effects = [one for one in found.effects if one.operation_id not in of_the_tail]
    return replace(found, journal=replace(found.journal, told=told, wrong=wrong), effects=effects)


def judge_failover(run: Run, found: Witnesses) -> list[str]:
    """In place of the ordinary rules, which call each lost booking a violation. Without a failover they hold."""
    unproved = [
        f"{operation}: a receipt without an attempt, on nobody's word"
        for operation, is_witnessed in _unattempted(run)
        if not (is_witnessed and KEPT in run.kept)
    ]
    wrong = _loss(run, found).wrong if KEPT in run.kept else judge.judge(found)
    return [*wrong, *unproved]


def _unattempted(run: Run) -> list[tuple[str, bool]]:
    return [(row[0], row[1]) for row in run.place.sql(UNATTEMPTED, [run.load.prefix])]


def _loss(run: Run, found: Witnesses) -> Loss:
    effects = _effects(run)
    jobs = list({UUID(effect.operation_id.partition(":")[0]) for effect in effects})
    receipts = [
        books.Receipt(operation, books.KINDS.get((step, direction), ""), *rest)
        for operation, step, direction, *rest in run.place.sql(judge.RECEIPTS, {"jobs": jobs})
    ]
    named = books.compare(effects, receipts, []).differences
    return judge_loss(run.kept[KEPT], found, effects, receipts, named)


def _collect(run: Run) -> Witnesses:
    return judge.collect(run.place, run.load.journal, run.load.prefix, _entries(run))


def _entries(run: Run) -> list[dict[str, Any]]:
    return run.place.sandbox.effects(after=run.begun.effects)


def _effects(run: Run) -> list[books.Effect]:
    return [judge.effect_of(entry) for entry in _entries(run)]


DRILL = Drill(
    name="failover",
    done="A standby is cut off; what commits from then on is lost with PostgreSQL; the standby takes its place.",
    faults=play,
    must_see=("failovers", "acknowledged_lost", "effects_reported", "repeated_under_key"),
    recovers="end",
    needs=frozenset({names.DATABASE}),
    judge=judge_failover,
    excused=frozenset({"R2"}),
)

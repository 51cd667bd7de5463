"""Runs drills one after the other on one stack: load, faults, heal, rest, judge.

Kept here: a drill is judged only after everything was healed and came to rest, or the deadline for that has passed, which is
a violation itself; the next one begins on a whole and quiet stack; and all drills are judged once more at the very end, when
no request of any of them can still be on its way.
"""

import random
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger import clock
from recovery.drills import judge
from recovery.drills.events import Events
from recovery.drills.load import Load
from recovery.drills.place import Place
from recovery.drills.report import Result
from recovery.drills.run import (
    JITTER,
    LATENCY_SECONDS,
    Begun,
    Drill,
    LateError,
    Run,
    declines,
)
from recovery.drills.watch import Watch

SAID = 10
WIRE_SECONDS = 12.0  # longer than any request of the sandbox's may be on its way once it is honest
STATES = """
SELECT j.state, count(*) FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s) GROUP BY 1 ORDER BY 1
"""
AT_REST = ("confirmed", "refused", "compensated", "closed", "parked")
UNDER_WAY = ("", "delay", "hold")  # how the books call requests that are answered or applied later


@dataclass(slots=True)
class Judged:
    """What the last judgement goes over again."""

    run: Run
    drill: Drill
    result: Result


def perform(place: Place, drill: Drill, *, jobs: int, seed: int) -> Judged:
    """One drill, from its first booking to its judgement."""
    begun = clock.monotonic()
    prefix = f"{drill.name}-{secrets.token_hex(3)}-"
    load = Load(place, prefix, jobs)
    place.say(f"{drill.name}: {drill.done}")
    with Watch(place, prefix) as watch:
        chance = random.Random(f"{seed} {drill.name}")  # noqa: S311  a schedule, no secret
        run = Run(place, load, watch, Events(place.workdir), chance, _begun(place))
        _behave(place, drill.rules, seed)
        try:
            load.start()
            _attempt(run, "the faults", lambda: drill.faults(run))
            _attempt(run, "the load", lambda: run.wait("every booking answered", load.is_over, 90))
        finally:
            load.stop()
            run.violations += place.ended_unasked()
            heal(place)
        _attempt(run, "the rest", lambda: _rest(run))
        result = _result(run, drill, clock.monotonic() - begun)
    result.failures += _judge(run, drill, place.sandbox.effects(after=run.begun.effects))
    result.failures += _judge_all(place, drill.excused)
    for text in [*result.failures[:SAID], *(f"never seen: {name}" for name in result.zero)]:
        place.say(f"    WRONG {text}")
    place.say(f"    {'passed' if result.has_passed else 'FAILED'}, {result.seconds:.0f} s")
    return Judged(run, drill, result)


def judge_again(place: Place, judged: Sequence[Judged]) -> None:
    """All of them once more, in the end: what has changed since is a violation of the drill that it belongs to."""
    effects = place.sandbox.effects()
    for one in judged:
        found = _judge(one.run, one.drill, effects)
        if one is judged[-1]:
            # The ledger is one: these are no single drill's.
            found += _judge_all(place, one.drill.excused)
        one.result.failures += [
            f"in the end: {text}" for text in found if text not in one.result.failures
        ]


def heal(place: Place) -> None:
    """An honest sandbox, every server and process up."""
    place.make_whole()
    place.sandbox.misbehave()
    place.sandbox.set_latency(0.0, 0.0)
    place.sandbox.release()


def _behave(place: Place, rules: Sequence[Any], seed: int) -> None:
    place.sandbox.set_latency(LATENCY_SECONDS, JITTER)
    place.sandbox.misbehave(*rules, *declines(), seed=seed)


def _attempt(run: Run, what: str, act: Callable[[], None]) -> None:
    """What does not come about in time is a violation, and the drill goes on to its judgement."""
    try:
        act()
    except LateError as late:
        run.violations.append(f"{what}: {late}")


def _rest(run: Run) -> None:
    """Every job ended or parked, and no request on its way."""
    seconds = run.place.periods.to_rest
    run.wait("every job at rest", lambda: set(_states(run)) <= set(AT_REST), seconds)
    run.wait("no request under way", lambda: not _under_way(run), WIRE_SECONDS)


def _states(run: Run) -> dict[str, int]:
    return dict(run.place.sql(STATES, [run.load.prefix]))


def _under_way(run: Run) -> bool:
    return any(
        one["status"] is None and one["action"] == "delay"
        for one in run.place.sandbox.requests(after=run.begun.requests)
    )


def _begun(place: Place) -> Begun:
    said = place.sandbox.summary()
    effects = said["captures"]["count"] + said["refunds"]["count"] + said["tickets"]
    return Begun(requests=said["requests"], effects=effects)


def _judge(run: Run, drill: Drill, effects: Sequence[Mapping[str, Any]]) -> list[str]:
    found = judge.collect(run.place, run.load.journal, run.load.prefix, effects)
    return [*run.violations, *drill.judge(run, found)]


def _judge_all(place: Place, excused: frozenset[str]) -> list[str]:
    return [*judge.in_database(excused), *place.room_problems()]


def _result(run: Run, drill: Drill, seconds: float) -> Result:
    observed = _observed(run)
    measured = {"claim": run.watch.claims, "end": run.watch.ends, "doubt": run.watch.doubts}
    faults = dict.fromkeys(fault.what for fault in run.watch.faults)
    return Result(
        name=drill.name,
        done=drill.done,
        jobs=sum(_states(run).values()),
        seconds=seconds,
        recovers=drill.recovers,
        recovery=measured[drill.recovers](),
        by_fault={name: run.watch.claims(name) for name in faults},
        observed={name: number for name, number in sorted(observed.items()) if number},
        outcomes=_states(run),
        notes=run.done,
        zero=[name for name in drill.must_see if not observed[name]],
    )


def _observed(run: Run) -> Counter[str]:
    """The drill's own counters, what was logged meanwhile, and what clients met."""
    journal = run.load.journal
    found = Counter(run.seen)
    found.update(run.events.count())
    found["replays"] = sum(one.replays for one in journal.told.values())
    found["cancelled"] = journal.cancelled
    found["unanswered"] = journal.unanswered
    found["answers_5xx"] = sum(n for status, n in journal.statuses.items() if status >= 500)
    found["answers_2xx"] = sum(n for status, n in journal.statuses.items() if status < 300)
    found["slowest_answer_ms"] = round(1000 * journal.slowest)
    return found

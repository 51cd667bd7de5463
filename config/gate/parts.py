"""The parts of the gate. Each yields lines: what was measured, what is allowed, whether that is so. None prints or stops."""

import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from config import guardian, processes, programs
from config.gate import reference
from ledger import selectors, sql
from ledger.standing import Standing
from recovery.simulation import database, planted, planted_ways, runs
from recovery.simulation.histories import History

PART_SECONDS = 400.0
GRACE_SECONDS = 20.0
STOPS_SERVERS = ("drill",)
URLS = programs.ADDRESSES
UNSURE = (Standing.UNKNOWN_OUTCOME, Standing.SETTLED_BY_HAND)
ALL_PLANTED = {**planted.PLANTED, **planted.MORE}
assert planted_ways.__name__, "imported for what it plants"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was measured."""

    part: str
    what: str
    measured: float | str
    allowed: str
    is_ok: bool


Limits = Mapping[str, Any]
Part = Callable[[Limits, processes.Ending], Iterator[Line]]


def histories(limits: Limits, ending: processes.Ending) -> Iterator[Line]:
    """Seeded histories against every invariant; at the rest of each, the report's arithmetic against the provider's book."""
    total, sums = runs.Total(), Sums()
    seeds = range(limits["first"], limits["first"] + limits["count"])
    with database.simulated(f"amends_simulation_gate_{os.getpid()}"):
        for seed in seeds:
            ending.check()
            sums.seed = seed
            total.take(runs.run(seed, sums.look))
    part = "histories"
    named = sorted({v.invariant for v in total.violations})
    yield at_most(
        part, f"violations in {len(seeds)} histories {named or ''}", len(total.violations), 0
    )
    yield at_most(part, f"classes without a case {total.missing() or ''}", len(total.missing()), 0)
    yield at_most(
        part, f"reports whose classes or money do not add up {sums.wrong or ''}", len(sums.wrong), 0
    )
    per_job = round(sums.attempts / max(1, sums.jobs), 2)
    yield at_most(part, "calls for each job", per_job, limits["calls_per_job_max"])


class Sums:
    """The report of what each history left, beside what a plain count and the provider's book say."""

    def __init__(self) -> None:
        self.seed = self.jobs = self.attempts = 0
        self.wrong: list[int] = []

    def look(self, history: History) -> None:
        report = selectors.report()
        jobs, attempts = sql.fetch(
            "SELECT (SELECT count(*) FROM ledger_job), (SELECT count(*) FROM ledger_attempt)"
        )[0]
        self.jobs, self.attempts = self.jobs + jobs, self.attempts + attempts
        is_whole = report.total == jobs and set(report.lines) == set(Standing)
        is_sure = not any(report.lines[standing].jobs for standing in UNSURE)
        if not is_whole or (is_sure and _held(report.lines) != _book(history)):
            self.wrong.append(self.seed)


def _held(lines: Mapping[Standing, Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in lines.values():
        for currency, amounts in line.money.items():
            found[currency] += amounts.held
    return Counter({currency: held for currency, held in found.items() if held})


def _book(history: History) -> Counter[str]:
    found: Counter[str] = Counter()
    for entry in history.provider.book.values():
        for amount, currency in (effect.money() for effect in entry.effects):
            found[currency] += amount
    return Counter({currency: held for currency, held in found.items() if held})


def planted_bugs(limits: Limits, ending: processes.Ending) -> Iterator[Line]:
    """Each bug is caught by the invariant named for it; without it the same history is sound."""
    unseen, blamed = [], []
    with database.simulated(f"amends_simulation_gate_{os.getpid()}"):
        for name, bug in ALL_PLANTED.items():
            likely = limits["seeds"].get(name, 1)
            seed = _caught(name, bug.invariant, [likely, *range(1, limits["search"] + 1)], ending)
            unseen += [] if seed else [name]
            blamed += [name] if seed and runs.run(seed).violations else []
    caught, wanted = len(ALL_PLANTED) - len(unseen), max(limits["caught_min"], len(ALL_PLANTED))
    yield at_least("planted", f"bugs caught {unseen or ''}", caught, wanted)
    yield at_most("planted", f"unsound without their bug {blamed or ''}", len(blamed), 0)


def _caught(
    name: str, invariant: str, seeds: Sequence[int], ending: processes.Ending
) -> int | None:
    """The first of these seeds whose history, with the bug in, violates the invariant."""
    with planted.bug(name):
        for seed in seeds:
            ending.check()
            if any(v.invariant == invariant for v in runs.run(seed).violations):
                return seed
    return None


def crash(limits: Limits, ending: processes.Ending) -> Iterator[Line]:
    """Faults at the named gaps, in process."""
    arguments = ["crash", "--in-process", "--script", limits["script"], "--json"]
    found = manage(arguments, ending)
    yield at_least("crash", "cases", found.get("cases", 0), limits["cases_min"])
    yield at_most("crash", "cases that do not converge", len(found.get("failed", [0])), 0)


def drills(limits: Limits, ending: processes.Ending) -> Iterator[Line]:
    """Real processes, real faults; the invariants of the database and the provider's books judge each."""
    arguments = ["drill", "all", "--jobs", str(limits["jobs"]), "--seed", str(limits["seed"])]
    found = manage([*arguments, "--json"], ending)
    ran = found.get("drills", [])
    yield at_least("drills", "drills that ran", len(ran), limits["names_min"])
    failed = [one["name"] for one in ran if not one["passed"]]
    yield at_most("drills", f"violations {failed or ''}", sum(one["violations"] for one in ran), 0)
    unseen = [f"{one['name']}: {name}" for one in ran for name in one["never_seen"]]
    yield at_most("drills", f"counters at zero {unseen or ''}", len(unseen), 0)
    yield at_most(
        "drills", f"left behind {found.get('failures') or ''}", len(found.get("failures", [0])), 0
    )
    measured = {one["name"]: one["recovery_s"]["p99"] for one in ran}
    for name, seconds in limits["recovery_p99_seconds_max"].items():
        yield at_most("drills", f"recovery of {name}, p99 in s", measured.get(name), seconds)


def throughput(limits: Limits, ending: processes.Ending) -> Iterator[Line]:
    """How fast a worker drains, against what one connection can commit here; and what must hold in what it left."""
    before = reference.commits_per_second()
    found = manage(["bench", "drain", "--jobs", str(limits["jobs"]), "--json"], ending)
    machine = max(before, reference.commits_per_second())
    ratio = round(found.get("drain_per_s", 0.0) / machine, 2)
    text = (
        f"sagas drained ({found.get('drain_per_s', 0)}/s) for each plain commit ({machine:.0f}/s)"
    )
    yield at_least("throughput", text, ratio, limits["ratio_min"])
    held = manage(["invariants", "--json"], ending)
    broken = [one["id"] for one in held.get("invariants", []) if one["violations"]]
    yield at_least(
        "throughput", "invariants asked of what it left", len(held.get("invariants", [])), 20
    )
    yield at_most(
        "throughput",
        f"invariants broken {broken or ''}",
        0 if held.get("ok") else max(1, len(broken)),
        0,
    )


PARTS: dict[str, Part] = {
    "histories": histories,
    "planted": planted_bugs,
    "crash": crash,
    "drills": drills,
    "throughput": throughput,
}


def at_most(part: str, what: str, measured: float | None, allowed: float) -> Line:
    is_ok = measured is not None and 0 <= measured <= allowed
    return Line(
        part, what.strip(), "nothing" if measured is None else measured, f"<= {allowed:g}", is_ok
    )


def at_least(part: str, what: str, measured: float, allowed: float) -> Line:
    return Line(part, what.strip(), measured, f">= {allowed:g}", measured >= allowed)


def manage(arguments: Sequence[str], ending: processes.Ending) -> dict[str, Any]:
    """Run a command of ours to its end and take the object that it prints; an empty one where it printed none. Its exit
    status is not asked for: whoever calls judges the figures, and a missing one fails.
    """
    own_servers = arguments[0] in STOPS_SERVERS
    env = {name: v for name, v in os.environ.items() if not (own_servers and name in URLS)}
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments]
    watch = guardian.Guardian()  # ends it even if this process is killed
    with tempfile.TemporaryFile() as printed:
        try:
            process = watch.start(command, stdout=printed, cwd=settings.BASE_DIR, env=env)
            try:
                ending.wait_until(lambda: process.poll() is not None, PART_SECONDS)
            finally:
                processes.end(process, signal.SIGTERM, GRACE_SECONDS)
        finally:
            watch.dismiss()
        printed.seek(0)
        return _object(printed.read())


def _object(printed: bytes) -> dict[str, Any]:
    try:
        found = json.loads(printed)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

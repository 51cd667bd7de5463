"""A soak as a whole: faults by kind, counters over all windows, recovery over all windows. Pure.

Kept here: a counter that was never seen in a soak of some size fails it: a promise that was never put to the test was not
kept, it was not asked for.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from recovery.drills import report
from recovery.drills.report import Report, Result

LARGE = 2_000  # jobs from which every counter must have been seen
FAULT, OUTCOME = "fault: ", "ended "
# What has to happen at least once somewhere in a soak, and how the windows call it; any one of several names will do.
SOMETIMES: Mapping[str, Sequence[str]] = {
    "stale write refused": ("write.refused",),
    "zombie woke after its lease": ("zombies",),
    "duplicate ticket absorbed": ("duplicates",),
    "unknown outcome found to have landed": ("found_landed",),
    "unknown outcome found not to have landed": ("found_otherwise",),
    "reply to a write lost, and the write repeated": ("write.repeated",),
    "tickets lost, and their jobs driven": ("flushes", "broker_restarts"),
    "compensation after a part was done": (f"{OUTCOME}compensated",),
    "late call neutralised": ("late_neutralised",),
    "429 obeyed": ("waits_obeyed",),
    "worker left in good order": ("terms",),
    "process killed": ("kills",),
    "lease ended by the watcher": ("owner.lost",),
    "lease ended by its expiry": ("jobs.reclaimed lease_expired",),
    "key asked again": ("replays",),
    "client cancelled": ("cancelled",),
    "database stopped in mode immediate": ("database_restarts",),
    "backends ended": ("backends_ended",),
    "network cut": ("partitions",),
    "provider away": ("outages",),
    "ticket delivered late, in another order": ("tickets_held",),
    "ticket delivered after the end": ("tickets_after_the_end",),
    "act of staff refused as stale": ("staff: stale",),
    "act of staff done": ("staff: done",),
    "unknown outcome parked": ("parked: unknown_outcome",),
    "ended long ago, and removed": ("jobs.retained",),
    "two builds on one ledger": ("builds",),
}
SKEWED = {"decided right under a wrong clock": ("skews",)}


def total(results: Iterable[Result]) -> Counter[str]:
    """Every counter of every window, and how its jobs ended."""
    found: Counter[str] = Counter()
    for one in results:
        found.update(one.observed)
        found.update({f"{OUTCOME}{state}": number for state, number in one.outcomes.items()})
    return found


def sometimes(counted: Mapping[str, int], *, has_faketime: bool) -> dict[str, int]:
    """Each declared counter with its sum."""
    declared = {**SOMETIMES, **(SKEWED if has_faketime else {})}
    return {what: sum(counted.get(n, 0) for n in names) for what, names in declared.items()}


def conclude(found: Report, *, has_faketime: bool) -> None:
    """Put the sums into the report; a soak of some size fails on each that is zero."""
    counted = total(found.results)
    jobs = sum(one.jobs for one in found.results)
    declared = sometimes(counted, has_faketime=has_faketime)
    found.sums = {
        "jobs": jobs,
        "violations": sum(len(one.failures) for one in found.results),
        "faults": {
            name.removeprefix(FAULT): number
            for name, number in sorted(counted.items())
            if name.startswith(FAULT)
        },
        "sometimes": declared,
        "recovery_s": report.percentiles([s for one in found.results for s in one.recovery]),
        "counted": dict(sorted(counted.items())),
    }
    if jobs >= LARGE:
        found.failures += [f"never seen: {what}" for what, number in declared.items() if not number]


def markdown(found: Report, commands: Sequence[str], name: str) -> str:
    """The run file of a soak."""
    return "\n".join(_lines(found, commands, name)) + "\n"


def _lines(found: Report, commands: Sequence[str], name: str) -> Iterator[str]:
    yield from report.head("Soak: one run", "manage.py soak", found, commands, name)
    yield ""
    yield f"{found.sums['jobs']} jobs, {found.sums['violations']} violations."
    yield from _counts("fault", found.sums["faults"])
    yield from _counts("must be seen at least once", found.sums["sometimes"])
    yield ""
    yield "Recovery is measured from a fault to the end of each job that was open then, its own work included."
    yield ""
    yield from report.table(found.results)
    yield ""
    yield "## What each window was dealt"
    yield ""
    yield from (f"- {one.name}, {one.seconds:.0f} s: {one.done}" for one in found.results)
    for one in found.results:
        if not one.has_passed:
            yield from report.section(one)


def _counts(what: str, counted: Mapping[str, int]) -> Iterator[str]:
    yield ""
    yield f"| {what} | times |"
    yield "| --- | ---: |"
    yield from (f"| {name} | {number} |" for name, number in counted.items())

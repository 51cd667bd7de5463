"""Restart: after the database or a machine was down, make what was stranded runnable now, and say what comes next.

The promise: it makes jobs runnable and never runs one, so that nothing is repeated which is not proved undone: the next
owner plans from the journal, as after any crash. It is the sweeps' own work a moment earlier, with the sweeps' own
functions: leases that have ended are taken back (a live one is left alone), what is due is ranked, lanes are rung.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from ledger import actions, journal, planner, policy, saga, selectors, tickets
from ledger.operations import Entry
from ledger.saga import Direction
from ledger.selectors import Whereabouts
from ledger.states import ENDED, JobState
from recovery import sweeps

LISTED_MAX = 1_000
PASSES_MAX = 50  # of the reclaim sweep, which is bounded itself


@dataclass(frozen=True, slots=True)
class Told:
    """One job: what was found, what its last checkpoint has settled, how it stands now, and what comes next.
    `goes_on` without a person.
    """

    job: UUID
    found: str
    checkpoint: dict[str, str]
    state: str
    next: str
    goes_on: bool


@dataclass(frozen=True, slots=True)
class Restarted:
    """`is_cut`: there were more jobs than are listed; they were made runnable all the same."""

    jobs: list[Told]
    reclaimed: int
    promoted: int
    rung: int
    is_cut: bool = False


def restart(job_ids: Sequence[UUID]) -> Restarted:
    """Make these jobs runnable, if anything holds them up that has ended. Ids that are no job's are not told of."""
    return _restart(selectors.whereabouts(job_ids), is_cut=False)


def restart_stalled() -> Restarted:
    """Make every job runnable that could go on and that nobody drives; tells of the first LISTED_MAX."""
    ids = selectors.stalled(LISTED_MAX + 1)
    return _restart(selectors.whereabouts(ids[:LISTED_MAX]), is_cut=len(ids) > LISTED_MAX)


def _restart(before: list[Whereabouts], *, is_cut: bool) -> Restarted:
    reclaimed, promoted, rung = _reclaim(), sweeps.promote().count, sweeps.ring().count
    after = {job.id: job for job in selectors.whereabouts([job.id for job in before])}
    journals = journal.read(list(after))
    settled = selectors.checkpoints(list(after))
    told = [
        _tell(was, after[was.id], journals[was.id], settled.get(was.id, {}))
        for was in before
        if was.id in after
    ]
    tickets.flush()
    return Restarted(told, reclaimed, promoted, rung, is_cut)


def _reclaim() -> int:
    """All leases that have ended: the sweep takes a bounded number, and skips while another one is at work."""
    total = 0
    for _ in range(PASSES_MAX):
        swept = sweeps.reclaim()
        total += swept.count
        if swept.skipped or not swept.count:
            break
    return total


def _tell(
    was: Whereabouts, now: Whereabouts, entries: Sequence[Entry], settled: dict[str, str]
) -> Told:
    comes, goes_on = _next(now, entries)
    return Told(now.id, _found(was), settled, str(now.state), comes, goes_on)


def _found(job: Whereabouts) -> str:
    if job.state in ENDED:
        return f"ended: {job.state}"
    if job.state is JobState.PARKED:
        return f"parked: {job.parked_reason}"
    if job.is_leased():
        return f"under a live lease for {_span(job.lease_seconds)} more: left alone"
    if job.state is JobState.RUNNING:
        return f"under a lease that ended {_span(job.lease_seconds)} ago"
    due = (job.now - job.due_at).total_seconds()
    return f"{job.state}, due {_span(due)} ago" if due >= 0 else f"{job.state}, not due yet"


def _next(job: Whereabouts, entries: Sequence[Entry]) -> tuple[str, bool]:
    """What comes next, in words, and whether it comes without a person."""
    if job.state in ENDED:
        return "nothing is left to do", True
    if job.state is JobState.PARKED:
        what = job.parked_detail or job.parked_reason
        return f"{what}; needs a person: manage.py resolve {job.id}", False
    if job.state is JobState.RUNNING:
        return "its owner goes on" if job.is_leased() else "a sweep takes it back", True
    wait = (job.due_at - job.now).total_seconds()
    when = f"waits until {job.due_at.isoformat(timespec='seconds')}, then " if wait > 0 else ""
    plan, goes_on = _planned(job, entries)
    return when + plan, goes_on


def _planned(job: Whereabouts, entries: Sequence[Entry]) -> tuple[str, bool]:
    definition = saga.find(job.saga, job.version)
    if definition is None:
        return f"waits for a build that knows {job.saga} version {job.version}", True
    try:
        plan = list(_plan(definition, job, entries))
    except Exception as error:  # noqa: BLE001  as in the engine, which parks a job that cannot be planned
        return f"cannot be planned ({type(error).__name__}): the engine will park it", False
    words = ", then ".join(_in_words(action, job) for action in plan)
    return words, not isinstance(plan[-1], actions.Park)


def _plan(
    definition: saga.Saga, job: Whereabouts, entries: Sequence[Entry]
) -> Iterator[actions.Action]:
    """As its next owner will plan it, as of when it is claimed."""
    asked = planner.Job(job.id, definition.input(**job.input), job.direction, job.lane)
    at = max(job.now, job.due_at)
    for planned in planner.ahead(definition, asked, entries, at, policy.current()):
        yield planned.action


def _in_words(action: actions.Action, job: Whereabouts) -> str:
    match action:
        case actions.Send(step, direction, n):
            does = "runs" if isinstance(action, actions.RunLocal) else "sends"
            return f"{does} {_name(step.name, direction)}{' again, same id' if n > 1 else ''}"
        case actions.Ask(step, direction):
            return f"asks the provider about {_name(step.name, direction)}"
        case actions.Bury(step, direction):
            return f"tells the provider to refuse {_name(step.name, direction)}"
        case actions.Record(name, direction, _, outcome, _):
            return f"records that {_name(name, direction)} was {outcome}, as was seen"
        case actions.Wait(delay, lane):
            until = (max(job.now, job.due_at) + delay).isoformat(timespec="seconds")
            return f"moves to the {lane} lane" if not delay else f"waits until {until}"
        case _:
            return _in_words_of_job(action, job)


def _in_words_of_job(
    action: actions.TurnBack | actions.Finish | actions.Park, job: Whereabouts
) -> str:
    match action:
        case actions.TurnBack():
            return "goes backward and undoes what was done"
        case actions.Finish(state):
            return f"ends: {state}"
        case actions.Park(reason, operation, detail):
            what = ": ".join(filter(None, (reason, operation, detail)))
            return f"parks: {what}; then needs a person: manage.py resolve {job.id}"


def _name(step: str, direction: Direction) -> str:
    return step if direction is Direction.FORWARD else f"the undo of {step}"


def _span(seconds: float | None) -> str:
    return f"{abs(seconds or 0.0):.0f} s"

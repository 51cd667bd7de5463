"""Staff act at random on random jobs while faults strike, some of them from a page that is out of date.

Shows that a person has no other way into a job than an owner has: what is stale is refused and changes nothing, what is
allowed goes through the same guarded write. These people are honest: they rule on an outcome by the provider's books alone.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from recovery.drills.run import Run
from recovery.drills.surroundings import Surroundings

AT_ONCE, ROUNDS = 12, 4
ACTS = ("retry", "ask", "compensate", "done", "not-done", "take", "note", "cancel")
SETTLED_SECONDS = 4.0  # a job that is parked for so long has no request on its way
PAGES = """
SELECT j.id, j.fence FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s) ORDER BY j.parked_at, j.finished_at IS NOT NULL, random() LIMIT %s
"""
PARKED = """
SELECT j.id, j.fence, j.parked_reason FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s) AND j.state = 'parked'
"""
COUNT = """
SELECT count(*) FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s) AND j.finished_at IS NULL AND """
BUSY = f"{COUNT} j.parked_at IS NULL"
STANDING = f"{COUNT} j.parked_at IS NOT NULL"
FRESH = f"{COUNT} j.parked_at > ledger_now() - interval '{SETTLED_SECONDS:g} seconds'"
Evidence = Mapping[str, Any]
DOUBTED = """
SELECT split_part(j.parked_detail, ': ', 1), j.input->>'subject', j.parked_at < ledger_now() - make_interval(secs => %s)
FROM ledger_job j WHERE j.id = %s AND j.state = 'parked'
"""


def strike(run: Run, place: Surroundings) -> None:
    """Everybody opens a page; then they act one after the other, each by what their page showed."""
    pages = place.sql(PAGES, [run.load.prefix, AT_ONCE])
    for job, fence in pages:
        act = run.chance.choice(ACTS)
        if act == "cancel":
            run.seen["staff: cancelled"] += place.cancel(job)
        elif (evidence := _evidence(place, job, act)) is not None:
            run.seen[f"staff: {place.act(job, act, seen=fence, evidence=evidence)}"] += 1
    run.seen["staff_acts"] += len(pages)
    run.note("staff act on random jobs")


def clear_desk(run: Run, place: Surroundings) -> None:
    """All is healed: what is parked is retried, and what parks again is ruled on, until nobody is needed any more."""
    for attempt in range(ROUNDS):
        place.wait_until(lambda: not _count(run, BUSY), place.periods.to_rest)
        if not attempt:
            run.seen["parked"] = _count(run, STANDING)
        if not _count(run, STANDING):
            return
        if attempt:
            place.wait_until(lambda: not _count(run, FRESH), 2 * SETTLED_SECONDS)
        for job, fence, reason in place.sql(PARKED, [run.load.prefix]):
            act, evidence = _truth(place, job) if attempt else ("retry", {})
            found = place.act(job, act, seen=fence, evidence=evidence)
            run.seen[f"parked: {reason}"] += 1
            run.seen[f"staff: {found}"] += 1
            run.note(f"a job parked as {reason}: staff say {act}, {found}")


def _count(run: Run, statement: str) -> int:
    count: int = run.place.sql(statement, [run.load.prefix])[0][0]
    return count


def _truth(place: Surroundings, job: UUID) -> tuple[str, Evidence]:
    """What can be said of the operation that it is parked for; where nothing can, it is to try again."""
    for act in ("done", "not-done"):
        if (evidence := _evidence(place, job, act)) is not None:
            return act, evidence
    return "retry", {}


def _evidence(place: Surroundings, job: UUID, act: str) -> Evidence | None:
    """What the act needs by way of evidence. None: an honest person cannot say that."""
    if act not in ("done", "not-done"):
        return {}
    rows = place.sql(DOUBTED, [SETTLED_SECONDS, job])
    if not rows:
        return {"note": "not parked, so that it must be refused"}
    operation, subject, is_settled = rows[0]
    if not operation.startswith(str(job)):
        return None  # it is parked as a whole
    return ruling(operation, act, place.sandbox.effects(subject), is_settled=is_settled)


def ruling(
    operation: str, act: str, effects: list[dict[str, Any]], *, is_settled: bool
) -> Evidence | None:
    """By the provider's books: what to say of this operation, if `act` is true of it."""
    made = [one for one in effects if one["operation_id"] == operation]
    if act == "done" and made:
        data = {name: made[0][name] for name in ("amount_minor", "currency") if made[0].get(name)}
        return {"ref": made[0]["id"], "data": data, "note": "it stands in the provider's books"}
    if act == "not-done" and not made and is_settled:
        return {"note": "the provider's books do not have it"}
    return None

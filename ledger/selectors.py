"""The read side: frozen views of the ledger for the API, the admin, metrics and reports. It writes nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from ledger import checkpoints as formats
from ledger import journal, saga, shares, sql, standing
from ledger.operations import Entry
from ledger.saga import Direction
from ledger.states import JobState, Lane


def entries(job_id: UUID) -> list[Entry]:
    """The journal of one job."""
    return journal.read([job_id])[job_id]


# Each state through its own index: whoever asks every few seconds must not read all that ever ended.
OPEN = """
SELECT saga, 'waiting', count(*) FROM ledger_job WHERE state = 'waiting' GROUP BY saga
UNION ALL SELECT saga, 'queued', count(*) FROM ledger_job WHERE state = 'queued' GROUP BY saga
UNION ALL SELECT saga, 'running', count(*) FROM ledger_job WHERE owner IS NOT NULL GROUP BY saga
UNION ALL SELECT saga, 'parked', count(*) FROM ledger_job WHERE state = 'parked' GROUP BY saga
"""


def open_jobs() -> list[tuple[str, str, int]]:
    """(saga, state, count) of all jobs that have not ended."""
    return [tuple(row) for row in sql.fetch(OPEN)]


RECENT_SECONDS, TENANTS_SHOWN = 300, 5
UNDONE = """
SELECT t.name, count(*) FROM ledger_job j JOIN ledger_tenant t ON t.id = j.tenant_id
WHERE j.finished_at > (SELECT ledger_now()) - make_interval(secs => %s) AND j.state = 'compensated'
GROUP BY t.name ORDER BY count(*) DESC, t.name LIMIT %s
"""


def undone_recently() -> list[tuple[str, int]]:
    """Who had the most jobs end undone in the last RECENT_SECONDS: each may have cost fees, and gave nothing."""
    return [tuple(row) for row in sql.fetch(UNDONE, [RECENT_SECONDS, TENANTS_SHOWN])]


# Where tenants have caps, what is over one cannot run: tenant by tenant then, as promotion reads them.
DUE = "SELECT min(due_at) FROM ledger_job WHERE state = 'waiting' AND lane = l.lane AND due_at <= (SELECT ledger_now())"
DUE_UNDER_CAPS = f"""SELECT CASE WHEN l.lane = %(lane)s THEN (SELECT min(d.due_at) FROM room CROSS JOIN LATERAL (
        SELECT min(due_at) AS due_at FROM ledger_job WHERE tenant_id = room.id AND lane = %(lane)s AND state = 'waiting'
            AND due_at <= (SELECT ledger_now())) d WHERE room.jobs > 0)
    ELSE ({DUE}) END"""  # noqa: S608  constants of this module
# The least due times and not EXISTS: a lane without any work would be looked for in the whole table.
RUNNABLE = """
SELECT l.lane, extract(epoch FROM (SELECT ledger_now()) - least(
    (SELECT min(due_at) FROM ledger_job WHERE state = 'queued' AND lane = l.lane), ({due})))::float8
FROM ledger_laneclock l
"""
OLDEST = RUNNABLE.format(due=DUE)
OLDEST_UNDER_CAPS = shares.ROOM + RUNNABLE.format(due=DUE_UNDER_CAPS)


def oldest_runnable_seconds() -> dict[str, float]:
    """Per lane, the age of the oldest job that a worker could run now; zero for an idle lane."""
    return {lane: max(0.0, age or 0.0) for lane, age in _oldest()}


def runnable_lanes() -> list[str]:
    """Lanes with work that a worker could take now."""
    return [lane for lane, age in _oldest() if age is not None]


def _oldest() -> list[tuple[str, float | None]]:
    if shares.is_capped(Lane.FORWARD):
        return sql.fetch(OLDEST_UNDER_CAPS, {"lane": Lane.FORWARD.value, "each": 1})
    return sql.fetch(OLDEST)


def tenant_id(name: str) -> UUID | None:
    """The id of a tenant; None for a name that nobody has."""
    rows = sql.fetch("SELECT id FROM ledger_tenant WHERE name = %s", [name])
    return rows[0][0] if rows else None


# --- The report ------------------------------------------------------------------------------------------------------

REPORT_BATCH = 200
JUDGED = """
SELECT id, saga, version, state, direction, parked_reason, leases_lost,
    coalesce(lease_until > (SELECT ledger_now()), false),
    greatest(0, extract(epoch FROM (SELECT ledger_now()) - created_at))::bigint, seq, parked_detail
FROM ledger_job
"""
PAGE = f"""{JUDGED}
WHERE id > %(after)s AND created_at <= %(until)s AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s)
    AND (%(tenant)s::uuid IS NULL OR tenant_id = %(tenant)s)
ORDER BY id LIMIT %(limit)s
"""
THESE = f"{JUDGED} WHERE id = ANY(%s::uuid[])"


@dataclass(frozen=True, slots=True)
class Judged:
    """A job with its journal, as `standing` judges it."""

    id: UUID
    job: standing.Job
    entries: list[Entry]
    seq: int
    parked_detail: str


def report(*, since: datetime | None = None, tenant: UUID | None = None) -> standing.Report:
    """Every job accepted until now (and since then, of that tenant), in its class. Holds one batch at a time."""
    found = standing.Report()
    for page in _pages({"since": since, "tenant": tenant, "limit": REPORT_BATCH}):
        for one in page:
            found.add(one.job, one.entries)
    return found


def judged(job_ids: Sequence[UUID]) -> list[Judged]:
    """Those of these jobs that exist. Asked within one snapshot, or while they are locked."""
    return _judged(sql.fetch(THESE, [list(job_ids)]))


def _pages(asked: dict[str, Any]) -> Iterator[list[Judged]]:
    """Batches in order of id, up to the moment it began: what is accepted meanwhile must not keep it going for ever."""
    asked["until"], asked["after"] = sql.fetch("SELECT ledger_now()")[0][0], UUID(int=0)
    while True:
        with sql.snapshot():
            page = _judged(sql.fetch(PAGE, asked))
        yield page
        if len(page) < asked["limit"]:
            return
        asked["after"] = page[-1].id


def _judged(rows: Sequence[Any]) -> list[Judged]:
    journals = journal.read([row[0] for row in rows])
    return [Judged(row[0], _job(row), journals[row[0]], row[9], row[10]) for row in rows]


def _job(row: Any) -> standing.Job:
    _, name, version, state, direction, reason, lost, is_leased, age = row[:9]
    definition = saga.find(name, version)
    return standing.Job(
        state=JobState(state),
        direction=Direction(direction),
        steps=[step.name for step in definition.steps] if definition else None,
        parked_reason=reason,
        is_leased=is_leased,
        leases_lost=lost,
        age_seconds=age,
    )


# --- Where a job is, for whoever looks after it ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """A job as the engine will find it. `lease_seconds` is what is left of its lease, negative when it has ended."""

    id: UUID
    saga: str
    version: int
    input: Any
    state: JobState
    direction: Direction
    lane: str
    parked_reason: str
    parked_detail: str
    due_at: datetime
    lease_seconds: float | None
    now: datetime

    def is_leased(self) -> bool:
        return self.lease_seconds is not None and self.lease_seconds > 0


WHERE = """
SELECT id, saga, version, input, state, direction, lane, parked_reason, parked_detail, due_at,
    extract(epoch FROM lease_until - ledger_now())::float8, ledger_now()
FROM ledger_job WHERE id = ANY(%s::uuid[]) ORDER BY id
"""


def whereabouts(job_ids: Sequence[UUID]) -> list[Whereabouts]:
    """Those of these jobs that exist, in order of id."""
    return [_whereabouts(row) for row in sql.fetch(WHERE, [list(job_ids)])]


CHECKPOINTS = """
SELECT DISTINCT ON (job_id) job_id, format, data FROM ledger_checkpoint WHERE job_id = ANY(%s::uuid[])
ORDER BY job_id, seq DESC
"""


def checkpoints(job_ids: Sequence[UUID]) -> dict[UUID, dict[str, str]]:
    """Of each job that has one, what its last checkpoint says is settled: {"step:direction": outcome}."""
    rows = sql.fetch(CHECKPOINTS, [list(job_ids)])
    return {id_: formats.outcomes_of(n, journal.as_json(data)) for id_, n, data in rows}


def _whereabouts(row: Any) -> Whereabouts:
    id_, name, version, stored, state, direction, lane, reason, detail, due, lease, now = row
    return Whereabouts(
        id_,
        name,
        version,
        journal.as_json(stored),
        JobState(state),
        Direction(direction),
        lane,
        reason,
        detail,
        due,
        lease,
        now,
    )


# Through the indexes of running, queued and waiting jobs: the ended ones are by far the most.
STALLED = """
(SELECT id FROM ledger_job WHERE owner IS NOT NULL AND lease_until <= (SELECT ledger_now()) LIMIT %(limit)s)
UNION ALL (SELECT j.id FROM ledger_laneclock l CROSS JOIN LATERAL (SELECT id FROM ledger_job
    WHERE state = 'queued' AND lane = l.lane ORDER BY due_at LIMIT %(limit)s) j LIMIT %(limit)s)
UNION ALL (SELECT j.id FROM ledger_laneclock l CROSS JOIN LATERAL (SELECT id FROM ledger_job
    WHERE state = 'waiting' AND lane = l.lane AND due_at <= (SELECT ledger_now()) ORDER BY due_at LIMIT %(limit)s) j
    LIMIT %(limit)s)
LIMIT %(limit)s
"""


def stalled(limit: int) -> list[UUID]:
    """At most so many jobs that could go on now and that nobody drives: a lease that has ended, or work past due."""
    return [row[0] for row in sql.fetch(STALLED, {"limit": limit})]


# --- By version, for whoever deploys ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs that have not ended, of one saga, version and checkpoint format; `steps`: how many journals name each."""

    saga: str
    version: int
    checkpoint_format: int
    jobs: int
    steps: dict[str, int]


IN_FLIGHT = """
SELECT saga, version, checkpoint_format, count(*) FROM ledger_job WHERE finished_at IS NULL GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
BEGUN = """
SELECT j.saga, j.version, j.checkpoint_format, a.step, count(DISTINCT j.id)
FROM ledger_job j JOIN ledger_attempt a ON a.job_id = j.id WHERE j.finished_at IS NULL
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
"""
IN_FLIGHT_IDS = """
SELECT id FROM ledger_job WHERE finished_at IS NULL AND saga = %s AND version = %s AND checkpoint_format = %s
    AND (%s::text IS NULL OR EXISTS (SELECT 1 FROM ledger_attempt a WHERE a.job_id = ledger_job.id AND a.step = %s))
ORDER BY id LIMIT %s
"""


def in_flight() -> list[Kind]:
    """What has not ended, by saga, version and checkpoint format."""
    found = {
        tuple(row[:3]): Kind(row[0], row[1], row[2], row[3], {}) for row in sql.fetch(IN_FLIGHT)
    }
    for *kind, step, jobs in sql.fetch(BEGUN):
        if (known := found.get(tuple(kind))) is not None:  # one may have been accepted in between
            known.steps[step] = jobs
    return list(found.values())


def in_flight_ids(kind: Kind, limit: int, step: str | None = None) -> list[UUID]:
    """The first jobs of a kind, or those of them whose journal names that step."""
    of = [kind.saga, kind.version, kind.checkpoint_format, step, step, limit]
    return [row[0] for row in sql.fetch(IN_FLIGHT_IDS, of)]

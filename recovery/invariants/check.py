"""Runs the named queries: each in a read-only transaction of its own, under a statement timeout.

So none of them holds a snapshot for longer than it takes, and none sees the middle of a write. What could not be asked
within the time is undecided, and an answer with anything undecided is not "ok".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import OperationalError, transaction

from ledger import sql
from recovery.invariants.effects import EFFECTS
from recovery.invariants.jobs import JOBS
from recovery.invariants.named import Invariant, parameters

ALL: tuple[Invariant, ...] = (*JOBS, *EFFECTS)
IDS_MAX = 20
SECONDS_MAX = 60.0
CANCELLED = "57014"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a query found. `is_undecided`: it took too long."""

    id: str
    statement: str
    violations: int
    ids: list[str]
    is_undecided: bool = False

    def is_ok(self) -> bool:
        return not self.violations and not self.is_undecided

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"id": self.id, "statement": self.statement}
        found |= {"violations": self.violations, "ids": self.ids}
        return found | ({"undecided": True} if self.is_undecided else {})


def run(invariants: Iterable[Invariant] = ALL, seconds: float = SECONDS_MAX) -> Iterator[Finding]:
    """One finding for each, in order, as they come."""
    given = parameters()
    for invariant in invariants:
        yield _ask(invariant, given, seconds)


def _ask(invariant: Invariant, given: dict[str, Any], seconds: float) -> Finding:
    try:
        with transaction.atomic():
            sql.fetch("SET TRANSACTION READ ONLY")
            sql.fetch(f"SET LOCAL statement_timeout = {int(seconds * 1000)}")
            count, ids = breaks(invariant, given)
    except OperationalError as error:
        if sql.state_of(error) != CANCELLED:
            raise
        return Finding(invariant.id, invariant.statement, 0, [], is_undecided=True)
    return Finding(invariant.id, invariant.statement, count, ids)


def breaks(invariant: Invariant, given: dict[str, Any]) -> tuple[int, list[str]]:
    """How many break it, and the first ids."""
    query = f"""
SELECT count(*), coalesce((array_agg(v.id ORDER BY v.id))[1:{IDS_MAX}], '{{}}')
FROM (SELECT DISTINCT q.id::text FROM ({invariant.query}) AS q(id)) AS v"""
    count, ids = sql.fetch(query, given)[0]
    return count, list(ids)

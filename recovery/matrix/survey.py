"""All cases of a saga: a fault of each kind that makes sense, at each point, in each situation that its scripts lead to.

Enumerated from the undisturbed runs, never drawn: the same definition has the same cases every time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import User
from django.test import override_settings

from ledger import saga, sql
from recovery.matrix import declared, faults, outside, scripts, times
from recovery.matrix.faults import Fault
from recovery.matrix.play import Play, Stage
from recovery.matrix.scripts import Script
from recovery.matrix.witness import Ending

# Short periods are not needed: nobody waits. These only have to be in order.
SETTINGS = {"LEASE_SECONDS": 30.0, "HEARTBEAT_SECONDS": 5.0, "CALL_SECONDS_MAX": 15.0, "SLOTS": 4,
            "BACKOFF_SECONDS": 0.5, "BACKOFF_SECONDS_MAX": 4.0, "PUBLISH_SILENCE_SECONDS": 0.0}  # fmt: skip
TENANT = "crash-matrix"
FIND_TENANT = """
INSERT INTO ledger_tenant (name) VALUES (%s) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id
"""


@dataclass(frozen=True, slots=True)
class Result:
    """One case. `why` says what is wrong with it; `ended` as the table shows it."""

    saga: str
    script: str
    fault: Fault
    situation: str
    ended: str
    is_undisturbed: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    results: list[Result]
    reached: frozenset[str]


@dataclass(frozen=True, slots=True)
class Case:
    script: Script
    fault: Fault
    situation: str


def survey(definition: saga.Saga, only: str = "", points: str | tuple[str, ...] = "") -> Survey:
    """Run every case of this saga; `only` those of one script, or at points that begin like this."""
    results: list[Result] = []
    reached: set[str] = set()
    with (
        override_settings(**SETTINGS),
        times.ahead() as time,
        outside.opened() as world,
        _known(world, definition) as tested,
    ):
        stage = Stage(time, world, tested, _tenant(), _staff())
        bases: dict[str, Ending] = {}
        seen: set[tuple[str, str]] = set()
        for script in scripts.of(tested):
            if only not in ("", script.name):
                continue
            undisturbed = Play(stage, script)
            base, why = _base(undisturbed)
            reached |= undisturbed.reached.keys()
            if base is None or why:
                results.append(_flawed(tested, script, base, why))
                continue
            bases[script.name] = base
            for case in _cases(undisturbed, seen):
                if not case.fault.point.startswith(points):
                    continue
                good = bases.get("all good", bases[script.name])
                results.append(_result(stage, case, bases[script.name], good))
    return Survey(results, frozenset(reached))


@contextmanager
def _known(world: outside.Outside, definition: saga.Saga) -> Iterator[saga.Saga]:
    """The saga under test, known to this build's runs within the block."""
    tested = saga.register(world.under_test(definition))
    try:
        yield tested
    finally:
        saga.forget(tested)


def _cases(undisturbed: Play, seen: set[tuple[str, str]]) -> Iterator[Case]:
    """Faults at what this run reached and no earlier one did, in the same situation. What a script's own fault led to
    is what its cases are about.
    """
    first = undisturbed.script.first
    is_on = first is None
    for reach in undisturbed.trace:
        if first is not None and (reach.point, reach.nth) == (first.point, first.nth):
            is_on = True
            continue
        if not is_on or reach.gap in seen:
            continue
        seen.add(reach.gap)
        for kind in faults.kinds_at(reach.point, is_called_out=reach.doubts):
            yield Case(undisturbed.script, Fault(kind, reach.point, reach.nth), reach.situation)


def _base(undisturbed: Play) -> tuple[Ending | None, str]:
    """The run that cases are compared with, and what is wrong with it."""
    try:
        base = undisturbed.run()
    except Exception as error:  # noqa: BLE001  as in a case
        return None, f"{type(error).__name__}: {error}"
    return base, declared.flaw(undisturbed, base)


def _flawed(tested: saga.Saga, script: Script, base: Ending | None, why: str) -> Result:
    fault, ended = script.first or Fault("error", "submit.after_commit"), str(base or "error")
    return Result(
        tested.name, script.name, fault, "undisturbed", ended, is_undisturbed=False, why=why
    )


def _result(stage: Stage, case: Case, base: Ending, good: Ending) -> Result:
    played = Play(stage, case.script, case.fault)
    try:
        ending = played.run()
    except Exception as error:  # noqa: BLE001  whatever a case runs into, the others are run too
        why, ended, same = f"{type(error).__name__}: {error}", "error", False
    else:
        ended, same = str(ending), ending == base
        why = "the fault did not strike" if case.fault not in played.struck else ""
        why = why or declared.disagreement(played, ending, base, good)
    return Result(
        stage.definition.name, case.script.name, case.fault, case.situation, ended, same, why
    )


def _tenant() -> UUID:
    found: UUID = sql.fetch(FIND_TENANT, [TENANT])[0][0]
    return found


def _staff() -> User:
    found, _ = User.objects.get_or_create(username=TENANT, is_staff=True, is_superuser=True)
    return found

"""Journals written by hand, in a notation that fits a table: what the planner is asked about.

    history("room+ payment-")        room confirmed, then payment refused
    history("room+ payment?", 60)    the last entry was 60 s ago

A step's name is followed by what became of its attempts, in order: `+` confirmed, `-` refused, `?` unknown, `.` not sent,
`r` released unsent, `t` throttled for 30 s, `a` unknown with its thread given up, `!` no receipt (its sender died).
`~room+` is an attempt of room's undo.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from ledger import actions, canonical, operations, patience, planner, saga
from ledger.operations import Attempt, Entry, Receipt, Resolution, Sighting
from ledger.outcomes import ReceiptOutcome
from ledger.saga import Direction
from tests import sagas

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = UUID(int=7)
STEPS = ("room", "payment", "ticket", "mail", "gone")  # the last is of no saga here
INPUT: Mapping[str, Any] = {"amount_minor": 12_000, "currency": "EUR"}
FORWARD, BACKWARD = Direction.FORWARD, Direction.BACKWARD
OUTCOMES: dict[str, tuple[ReceiptOutcome, dict[str, Any]]] = {
    "+": (ReceiptOutcome.CONFIRMED, {"ref": "ref"}),
    "-": (ReceiptOutcome.REFUSED, {"reason": "no"}),
    "?": (ReceiptOutcome.UNKNOWN, {"reason": "timeout"}),
    ".": (ReceiptOutcome.NOT_SENT, {"reason": "connection_refused", "released": False}),
    "a": (ReceiptOutcome.UNKNOWN, {"reason": "deadline", "abandoned": True}),
    "r": (ReceiptOutcome.NOT_SENT, {"reason": "released", "released": True}),
    "t": (ReceiptOutcome.THROTTLED, {"after_seconds": "30"}),
}
POLICY = patience.Policy(timedelta(seconds=2), timedelta(seconds=60))


def history(text: str, ago: float = 3600.0) -> list[Entry]:
    """The journal that `text` writes down, with every row `ago` seconds before NOW."""
    at = NOW - timedelta(seconds=ago)
    entries: list[Entry] = []
    for word in text.split():
        name = next(step for step in STEPS if word.lstrip("~").startswith(step))
        direction = BACKWARD if word.startswith("~") else FORWARD
        for n, sign in enumerate(word.lstrip("~")[len(name) :], start=1):
            entries.append(attempt(name, n, direction, at))
            if sign != "!":
                outcome, evidence = OUTCOMES[sign]
                entries.append(Receipt(name, direction, n, outcome, evidence, at))
    return entries


def attempt(
    step: str,
    n: int = 1,
    direction: Direction = FORWARD,
    at: datetime = NOW,
    arguments: Mapping[str, Any] = INPUT,
) -> Attempt:
    first = arguments if n == 1 else None
    return Attempt(step, direction, n, 1, at, canonical.fingerprint(arguments), first)


def seen(
    step: str,
    kind: str,
    outcome: str,
    ago: float = 0.0,
    direction: Direction = FORWARD,
    **evidence: Any,
) -> Sighting:
    found = {"ref": "ref", **evidence}
    return Sighting(step, direction, 1, kind, outcome, found, NOW - timedelta(seconds=ago), 1)


def resolved(
    step: str, act: str, ago: float = 0.0, direction: Direction = FORWARD, **evidence: Any
) -> Resolution:
    return Resolution(step, direction, act, "someone", evidence, NOW - timedelta(seconds=ago))


def definition(step: str = "payment", **options: Any) -> saga.Saga:
    """room, payment, the pivot ticket and a mail after it; `options` change one step."""
    world = sagas.World()
    steps = [sagas.step(world, name) for name in ("room", "payment", "ticket", "mail")]
    steps[2] = replace(steps[2], pivot=True)
    return saga.Saga(
        "test.trip",
        version=1,
        steps=[replace(s, **options) if s.name == step else s for s in steps],
    )


def effect(**promises: Any) -> saga.Effect:
    return saga.Effect(provider="world", **{"key_lifetime": timedelta(days=1), **promises})


def plan(
    entries: list[Entry],
    *,
    direction: Direction = FORWARD,
    lane: str = "",
    of: saga.Saga | None = None,
) -> actions.Action:
    lane = lane or ("forward" if direction is FORWARD else "compensation")
    job = planner.Job(JOB, INPUT, direction, lane)
    return planner.decide(of or definition(), job, operations.fold(entries), NOW, POLICY)


def told(action: actions.Action) -> tuple[Any, ...]:
    """An action in a form that fits a table."""
    match action:
        case actions.Send():
            verb = "local" if isinstance(action, actions.RunLocal) else "send"
            return (verb, action.step.name, str(action.direction), action.n)
        case actions.Ask(step, direction, n, _) | actions.Bury(step, direction, n, _):
            verb = "ask" if isinstance(action, actions.Ask) else "bury"
            return (verb, step.name, str(direction), n)
        case actions.Record(name, direction, _, outcome, _):
            return ("record", name, str(direction), str(outcome))
        case _:
            return _told_of_job(action)


def _told_of_job(
    action: actions.TurnBack | actions.Wait | actions.Finish | actions.Park,
) -> tuple[Any, ...]:
    match action:
        case actions.TurnBack():
            return ("turn",)
        case actions.Wait(_, lane):
            return ("wait", lane)
        case actions.Finish(state):
            return ("finish", str(state))
        case actions.Park(reason, operation, _):
            return ("park", str(reason), operation.removeprefix(f"{JOB}:"))

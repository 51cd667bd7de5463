"""What a person may do with a parked job, and what each act needs: (the job as it is, what is asked) -> one move. Pure.

The promise: no act calls a provider or writes an outcome that the engine would. It states a fact, gives leave, or asks the
engine to go on, under the same operation ids; whatever is refused is refused with one sentence and changes nothing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ledger import operations, outcomes, patience, saga
from ledger.operations import Key, Operation, Resolution
from ledger.saga import Direction
from ledger.states import ENDED, JobState, ParkedReason

REASON_MIN = 10
PROPOSED = "close-proposed"
# Operations that the engine gave up: a person may have done them in its place.
BY_HAND = frozenset(
    {
        ParkedReason.COMPENSATION_FAILED,
        ParkedReason.EXHAUSTED,
        ParkedReason.REFUSED_AFTER_PIVOT,
        ParkedReason.CONFLICT,
    }
)


class ActRefused(outcomes.LedgerError):
    """An act that is not allowed; the sentence says why. Nothing was written.

    ActRefused
    ├── NotPermitted   the person may not do this
    └── MovedOn        the job is not what the person saw, or not parked
    """


class NotPermitted(ActRefused):
    """The person may not do this."""


class MovedOn(ActRefused):
    """The job is not what the person saw, or not parked."""


@dataclass(frozen=True, slots=True)
class Verb:
    """An act: its word, the permission that it needs, and what it would do, for whoever confirms it."""

    name: str
    permission: str
    title: str
    effect: str


VERBS: Mapping[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("ask", "ask_provider", "Ask the provider now",
             "Asks what became of it, and goes on from the answer."),
        Verb("retry", "retry_compensation", "Retry now, same id",
             "A fresh budget and deadline under the same operation id: nothing happens twice."),
        Verb("done", "resolve_unknown", "Resolve as done",
             "States that it happened. Needs the provider's reference, or evidence in words."),
        Verb("not-done", "resolve_unknown", "Resolve as not done",
             "States that it did not happen and will not. Needs evidence in words."),
        Verb("compensate", "compensate_job", "Compensate now",
             "Turns the job back: whatever was done is undone."),
        Verb("close", "force_close", "Close as settled by hand",
             "Ends the job as it is. The first person proposes, a second one closes."),
        Verb("take", "take_job", "Take", "Says that you look after it."),
        Verb("release", "take_job", "Release", "Says that nobody looks after it."),
        Verb("note", "take_job", "Note", "Leaves your words in the journal."),
    )
}  # fmt: skip
RULINGS = frozenset({"done", "not-done", "close"})
# Reasons for which, and age of evidence up to which, the reconcile sweep sends a parked job on. Parked for others a job
# cannot go on from evidence: it would be parked again, and again.
GOES_ON = frozenset(
    {ParkedReason.UNKNOWN_OUTCOME, ParkedReason.COMPENSATION_FAILED, ParkedReason.EXHAUSTED}
)
LOOKS_BACK = timedelta(days=7)
OF_OPERATION = frozenset({"ask", "retry", "done", "not-done"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person asks for. Evidence: `ref`, the provider's own name of the effect; `data`; `note`, in words."""

    act: str
    by: str
    reason: str
    operation: Key | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def says(self) -> bool:
        return self._has("note")

    def names_effect(self) -> bool:
        return self._has("ref")

    def _has(self, name: str) -> bool:
        found = self.evidence.get(name)
        return isinstance(found, str) and bool(found.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job as it is when somebody acts on it. `past`: the acts of people so far, oldest first."""

    job_id: UUID
    state: JobState
    direction: Direction
    pivot_sent: bool
    fence: int
    seq: int
    parked_reason: str
    parked_detail: str
    parked_at: datetime | None
    taken_by: str
    now: datetime
    ops: Mapping[Key, Operation]
    past: Sequence[Resolution]
    definition: saga.Saga | None
    policy: patience.Policy = field(default_factory=patience.Policy)

    def blocked(self) -> Key | None:
        return parked_for(self.job_id, self.parked_detail)

    def effect(self, key: Key) -> saga.Effect | saga.Local | None:
        step = self.definition.step(key[0]) if self.definition else None
        return step.effect_of(key[1]) if step else None

    def can_turn(self) -> bool:
        is_forward = self.direction is Direction.FORWARD and not self.pivot_sent
        return is_forward and self.state not in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What the act writes. Without a key it is about the job as a whole; `fresh` gives new budgets and a new deadline."""

    to: JobState = JobState.WAITING
    act: str
    key: Key | None = None
    turns: bool = False
    fresh: bool = False
    witness: Mapping[str, Any] = field(
        default_factory=dict
    )  # what the ruling rests on, beside what was said
    taken_by: str = ""


def judge(case: Case, asked: Asked) -> Move:
    """The move, or ActRefused."""
    return _JUDGES[asked.act](case, asked)


def offered(case: Case, by: str) -> list[str]:
    """The acts that this person could do now, given evidence, for the page that shows the job."""
    if case.state is not JobState.PARKED:
        return ["compensate"] if case.can_turn() else []
    return [act for act in VERBS if any(_fits(case, act, by, key) for key in (None, *case.ops))]


def _fits(case: Case, act: str, by: str, key: Key | None) -> bool:
    asked = Asked(act=act, by=by, reason="", operation=key, evidence={"note": "some"})
    try:
        judge(case, asked)
    except ActRefused:
        return False
    return True


def parked_for(job_id: UUID, detail: str) -> Key | None:
    """The operation that a job is parked for: the detail begins with its id."""
    found = re.match(rf"{job_id}:([^:]+):(forward|backward)(?::|$)", detail)
    return (found[1], Direction(found[2])) if found else None


def refuse_moved(case: Case, asked: Asked, seen: int | None) -> None:
    """MovedOn, unless the job is parked under the fence that was seen; None: any."""
    is_current = seen is None or case.fence == seen
    if case.state is JobState.PARKED and is_current:
        return
    last = case.past[-1] if case.past else None
    if not is_current and last is not None and last.act in (asked.act, f"{asked.act}-proposed"):
        raise MovedOn(f"already requested: {last.act} by {last.by}; the job is {case.state}")
    if case.state in ENDED:
        raise MovedOn(f"the job has ended, {case.state}")
    now = f"the job is {case.state} and goes {case.direction}"
    if case.state is JobState.PARKED:
        raise MovedOn(
            f"the page is out of date: {now}, parked for {case.parked_reason}; look again"
        )
    raise MovedOn(f"{now}; it is not parked: acts wait until it parks")


def refuse_unheard(case: Case, asked: Asked, heard: int | None) -> None:
    """MovedOn, if evidence has come in since the page of whoever rules was shown: a ruling outweighs what came before it."""
    if heard not in (None, operations.heard(case.ops)) and asked.act in RULINGS:
        raise MovedOn("the page is out of date: evidence has come in since; look again")


def refuse_no_way_back(case: Case) -> None:
    """Refused, unless the job goes forward and its pivot was not sent."""
    if case.state in ENDED:
        raise MovedOn(f"the job has ended, {case.state}")
    if case.direction is Direction.BACKWARD:
        raise MovedOn(f"the job is {case.state} and goes backward already")
    if case.pivot_sent:
        raise ActRefused("its pivot may have been sent: nothing goes back past it")


def name_of(key: Key | None) -> str:
    return f"{key[0]}:{key[1]}" if key else ""


def _ask(case: Case, asked: Asked) -> Move:
    key, operation = _operation(case, asked)
    if not _is_open(operation):
        raise ActRefused(f"{_standing(key, operation)}: there is nothing to ask")
    effect = case.effect(key)
    if not isinstance(effect, saga.Effect) or effect.probe is None:
        raise ActRefused(f"{name_of(key)} cannot be asked about: no probe is known for it")
    return Move(act="ask", key=key)


def _retry(case: Case, asked: Asked) -> Move:
    if asked.operation is None and case.blocked() is None:
        return Move(act="retry", fresh=True)  # parked as a whole: it goes on
    key, operation = _operation(case, asked)
    if operation.contradiction() is not None:
        raise ActRefused(f"{name_of(key)} is contradicted: resolve it as done or not done")
    if operation.final is not None:
        how = f"{name_of(key)} is {operation.final.outcome} for good"
        raise ActRefused(f"{how}: settle it by hand and resolve it as done, or close")
    if operation.doubtful():
        _refuse_expired_key(case, key, operation)
    return Move(act="retry", key=key, fresh=True)


def _refuse_expired_key(case: Case, key: Key, operation: Operation) -> None:
    """Without its key, to send again could be to do it twice."""
    effect = case.effect(key)
    if isinstance(effect, saga.Local):
        return
    until = patience.key_until(case.policy, effect, operation) if effect else None
    if until is not None and case.now < until:
        return
    instead = "ask instead" if effect and effect.probe else "resolve it as done or not done"
    raise ActRefused(f"{name_of(key)} is unknown and its key may have expired: {instead}")


def _done(case: Case, asked: Asked) -> Move:
    key, operation = _operation(case, asked)
    is_given_up = key == case.blocked() and case.parked_reason in BY_HAND
    if not (_is_open(operation) or is_given_up):
        raise ActRefused(f"{_standing(key, operation)}: there is nothing to settle by hand")
    _refuse_settled(case, key, operation)
    if not (asked.says() or asked.names_effect()):
        raise ActRefused("done needs the provider's reference, or evidence in words")
    if _is_named_by_its_undo(case, key) and not (
        asked.names_effect() or operation.witness().get("ref")
    ):
        how = "its undo names it by the provider's reference"
        raise ActRefused(f"done needs a ref for {name_of(key)}: {how}")
    named = str(asked.evidence.get("ref") or "")
    return Move(act="done", key=key, witness=operation.witness(named))


def _not_done(case: Case, asked: Asked) -> Move:
    key, operation = _operation(case, asked)
    if not _is_open(operation):
        raise ActRefused(f"{_standing(key, operation)}: it is neither unknown nor contradicted")
    _refuse_settled(case, key, operation)
    if not asked.says():
        raise ActRefused("not-done needs evidence in words")
    return Move(act="not-done", key=key)


def _refuse_settled(case: Case, key: Key, operation: Operation) -> None:
    """A sweep takes up what decides, of jobs that can go on from it."""
    seen = operation.deciding_sighting()
    if seen is not None and case.parked_reason in GOES_ON and seen.at > case.now - LOOKS_BACK:
        raise MovedOn(f"evidence has arrived that settles {name_of(key)}: a sweep takes it up")


def _is_named_by_its_undo(case: Case, key: Key) -> bool:
    step = case.definition.step(key[0]) if case.definition else None
    is_remote = isinstance(case.effect(key), saga.Effect)
    return key[1] is Direction.FORWARD and is_remote and step is not None and callable(step.undo)


def _compensate(case: Case, _asked: Asked) -> Move:
    refuse_no_way_back(case)
    return Move(act="compensate", turns=True)


def _close(case: Case, asked: Asked) -> Move:
    """A proposal holds for as long as the job stays parked."""
    assert case.parked_at is not None, "a parked job has a time"
    proposers = {p.by for p in case.past if p.act == PROPOSED and p.at >= case.parked_at}
    if not proposers:
        return Move(to=JobState.PARKED, act=PROPOSED, taken_by=case.taken_by)
    if proposers == {asked.by}:
        raise ActRefused(f"already proposed by {asked.by}: a second person closes it")
    return Move(to=JobState.CLOSED, act="close")


def _take(case: Case, asked: Asked) -> Move:
    if case.taken_by:
        raise ActRefused(f"already taken by {case.taken_by}")
    return Move(to=JobState.PARKED, act="take", taken_by=asked.by)


def _release(case: Case, _asked: Asked) -> Move:
    if not case.taken_by:
        raise ActRefused("nobody has taken it")
    return Move(to=JobState.PARKED, act="release")


def _note(case: Case, _asked: Asked) -> Move:
    return Move(to=JobState.PARKED, act="note", taken_by=case.taken_by)


_JUDGES: Mapping[str, Callable[[Case, Asked], Move]] = {
    "ask": _ask,
    "retry": _retry,
    "done": _done,
    "not-done": _not_done,
    "compensate": _compensate,
    "close": _close,
    "take": _take,
    "release": _release,
    "note": _note,
}
assert set(_JUDGES) == set(VERBS), "every act is judged"


def _operation(case: Case, asked: Asked) -> tuple[Key, Operation]:
    """The operation that was named, or else the one that the job is parked for."""
    key = asked.operation or case.blocked()
    known = ", ".join(name_of(k) for k in case.ops) or "none"
    if key is None:
        raise ActRefused(f"name the operation, as STEP:DIRECTION; the journal has {known}")
    if key not in case.ops and key != case.blocked():
        raise ActRefused(f"the journal has no operation {name_of(key)}; it has {known}")
    return key, case.ops.get(key, Operation())


def _is_open(operation: Operation) -> bool:
    return bool(operation.doubtful()) or operation.contradiction() is not None


def _standing(key: Key, operation: Operation) -> str:
    final = operation.final
    return f"{name_of(key)} is {final.outcome if final else 'proved not to have been sent'}"

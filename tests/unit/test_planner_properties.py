"""Random histories: the planner against a world that does what it likes. Whatever happens, every history ends, nothing is
sent twice that must not be, and undos run in reverse.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import actions, operations, planner, saga
from ledger.operations import Attempt, Entry, Receipt, Sighting
from ledger.outcomes import FINAL_OUTCOMES, ReceiptOutcome
from ledger.saga import Direction
from ledger.states import JobState, ParkedReason
from tests import histories, sagas

ACTIONS_MAX = 600
SIGNS = "+-?.rt!xa"  # x: its sender was lost by lease; a: its thread was given up
FORWARD, BACKWARD = Direction.FORWARD, Direction.BACKWARD


@dataclass
class Life:
    """One job from its first action to its end: what the world answered, and what was asked of it."""

    definition: saga.Saga
    signs: list[str]
    answers: list[str]
    cancel_at: int
    entries: list[Entry] = field(default_factory=list)
    direction: Direction = FORWARD
    lane: str = "forward"
    now: Any = histories.NOW
    end: actions.Finish | actions.Park | None = None
    taken: int = 0

    def ops(self) -> dict[operations.Key, operations.Operation]:
        return operations.fold(self.entries)

    def live(self) -> None:
        while self.end is None:
            self.taken += 1
            assert self.taken <= ACTIONS_MAX, "a history that does not end"
            if self.taken == self.cancel_at and not self.pivot_sent(None):
                self.direction = BACKWARD
            job = planner.Job(histories.JOB, histories.INPUT, self.direction, self.lane)
            self.do(planner.decide(self.definition, job, self.ops(), self.now, histories.POLICY))
            self.now += timedelta(milliseconds=10)

    def pivot_sent(self, next_send: str | None) -> bool:
        return planner.pivot_may_be_sent(self.definition, operations.fold(self.entries), next_send)

    def do(self, action: actions.Action) -> None:
        match action:
            case actions.Send():
                check_send(self, action)
                self.send(action)
            case actions.Ask(step, direction, n, _):
                self.ask(step.name, direction, n)
            case actions.Bury(step, direction, n, _):
                assert direction is FORWARD, "an undo is wanted: nobody buries it"
                assert self.direction is BACKWARD, "buried while it was wanted"
                self.bury(step.name, direction, n)
            case actions.Record(step, direction, n, outcome, evidence):
                check_record(self, action)
                self.entries.append(Receipt(step, direction, n, outcome, evidence, self.now))
            case actions.TurnBack():
                assert not self.pivot_sent(None), "turned past the point of no return"
                self.direction = BACKWARD
            case actions.Wait(delay, lane):
                assert delay >= timedelta()
                assert delay > timedelta() or lane != self.lane, "a wait that changes nothing"
                self.now, self.lane = self.now + delay, lane
            case actions.Finish() | actions.Park():
                self.end = action

    def send(self, action: actions.Send) -> None:
        step, direction, n = action.step.name, action.direction, action.n
        first = action.arguments if n == 1 else None
        self.entries.append(Attempt(step, direction, n, 1, self.now, action.fingerprint, first))
        sign = self.signs.pop() if self.signs else "+"
        if isinstance(action, actions.RunLocal) and sign in "?!xa":
            sign = "."  # a local step is rolled back or committed, never in doubt
        if sign in "!x":
            how = "owner_dead" if sign == "!" else "lease_expired"
            found = {"how": how, "lease_until": self.now.isoformat()}
            self.entries.append(
                Sighting(step, direction, n, "sender_lost", "unknown", found, self.now, 1)
            )
            return
        outcome, evidence = histories.OUTCOMES[sign]
        self.entries.append(Receipt(step, direction, n, outcome, evidence, self.now, 1))

    def ask(self, step: str, direction: Direction, n: int) -> None:
        answer = self.answers.pop() if self.answers else "not_landed"
        found = {"ref": "ref", "asked_at": self.now.isoformat()}
        self.entries.append(Sighting(step, direction, n, "probe", answer, found, self.now, 1))

    def bury(self, step: str, direction: Direction, n: int) -> None:
        answer = self.answers.pop() if self.answers else "refused"
        answer = "unknown" if answer == "not_landed" else answer
        found = {"ref": "ref"}
        self.entries.append(Sighting(step, direction, n, "tombstone", answer, found, self.now, 1))


def check_send(life: Life, action: actions.Send) -> None:
    """What must hold for every attempt, before it is written."""
    operation = life.ops().get((action.step.name, action.direction))
    attempts = operation.attempts if operation else []
    assert action.n == len(attempts) + 1
    if operation is not None:
        assert operation.final is None, "sent again after a final receipt"
        check_resend(life, action, operation)
    if action.direction is BACKWARD:
        check_undo(life, action)
    elif life.direction is BACKWARD:
        effect = action.step.effect_of(FORWARD)
        assert isinstance(effect, saga.Effect)
        assert effect.resend_to_learn, "a forward call of a job that goes backward"
        assert operation is not None
        assert operation.doubtful(), "sent to learn what is known"


def check_resend(life: Life, action: actions.Send, operation: operations.Operation) -> None:
    first = operation.attempts[0]
    assert action.arguments == first.arguments
    assert action.fingerprint == first.fingerprint
    if operation.doubtful():
        effect = action.step.effect_of(action.direction)
        assert isinstance(effect, saga.Effect)
        lifetime = effect.key_lifetime or timedelta()
        key_lives = life.now < operation.doubtful()[0].at + lifetime
        assert key_lives or is_proved_not_landed(effect, operation), "sent again without a key"


def is_proved_not_landed(effect: saga.Effect, operation: operations.Operation) -> bool:
    """Told otherwise than the planner does: the last word is a negative probe, and nothing can have been on its way."""
    negative = [s.at for s in operation.sightings if s.outcome == "not_landed"]
    is_sender_alive = any(
        "abandoned" in operation.receipts[a.n].evidence
        if a.n in operation.receipts
        else any(
            s.n == a.n and s.evidence.get("how") == "lease_expired" for s in operation.sightings
        )
        for a in operation.doubtful()
    )
    doubtful = {a.n for a in operation.doubtful()}
    last = max(
        [r.at for r in operation.receipts.values() if r.n in doubtful]
        + [s.at for s in operation.sightings if s.kind == "sender_lost" and s.n in doubtful]
    )
    landing = effect.request_lifetime + effect.probe_lag
    is_late = bool(negative) and max(negative) > last + landing
    return is_late and (not is_sender_alive or effect.late_probe_suffices)


def check_record(life: Life, action: actions.Record) -> None:
    """Evidence that somebody saw; or a proof that nothing can come any more."""
    operation = life.ops()[action.step, action.direction]
    assert operation.final is None, "settled twice"
    if action.evidence["seen_by"] != "late_probe":
        assert any(s.outcome == action.outcome for s in operation.sightings)
        return
    step = life.definition.step(action.step)
    assert step is not None
    effect = step.effect_of(action.direction)
    assert isinstance(effect, saga.Effect)
    assert action.outcome is ReceiptOutcome.REFUSED
    assert is_proved_not_landed(effect, operation)


def check_undo(life: Life, action: actions.Send) -> None:
    ops, names = life.ops(), [step.name for step in life.definition.steps]
    assert life.direction is BACKWARD
    forward = ops[action.step.name, FORWARD]
    assert forward.is_confirmed(), "undone without having happened"
    pivot = life.definition.pivot_index()
    if pivot is not None and (confirmed := ops.get((names[pivot], FORWARD))) is not None:
        assert not confirmed.is_confirmed(), "compensated past a confirmed pivot"
    for later in names[names.index(action.step.name) + 1 :]:
        done = ops.get((later, FORWARD))
        if done is None:
            continue
        assert not done.doubtful(), "undone before a later step was settled"
        if done.is_confirmed():
            assert is_undone_or_blocked(life, later), "undone out of order"


def is_undone_or_blocked(life: Life, name: str) -> bool:
    step, undo = life.definition.step(name), life.ops().get((name, BACKWARD))
    assert step is not None
    if not callable(step.undo):
        return True
    if undo is None:
        return False
    if undo.final is not None:
        return True
    spent = undo.budget_used() >= step.undo_attempts
    return spent or bool(undo.doubtful())


def check_end(life: Life) -> None:
    ops = life.ops()
    forward = {step: op for (step, direction), op in ops.items() if direction is FORWARD}
    confirmed = {step for step, op in forward.items() if op.is_confirmed()}
    undone = {
        step for (step, direction), op in ops.items() if direction is BACKWARD and op.is_confirmed()
    }
    doubtful = any(op.doubtful() for op in ops.values())
    contradicted = any(op.contradiction() for op in ops.values())
    if isinstance(life.end, actions.Finish):
        assert not contradicted
    match life.end:
        case actions.Finish(JobState.CONFIRMED):
            assert confirmed == {step.name for step in life.definition.steps}
            assert life.direction is FORWARD
        case actions.Finish(JobState.COMPENSATED):
            assert confirmed
            assert undone == confirmed
            assert not doubtful
        case actions.Finish(JobState.REFUSED):
            assert not confirmed
            assert not doubtful
        case actions.Park(reason, operation):
            assert reason is not ParkedReason.CONTRADICTION or contradicted
            assert operation.startswith(f"{histories.JOB}:"), "parked without a name"
        case _:
            raise AssertionError(f"not an end: {life.end}")


@st.composite
def steps(draw: st.DrawFn) -> list[saga.Step]:
    world, count = sagas.World(), draw(st.integers(1, 4))
    pivot = draw(st.none() | st.integers(0, count - 1))
    found = []
    for index in range(count):
        options: dict[str, Any] = {
            "attempts": draw(st.integers(1, 3)),
            "undo_attempts": draw(st.integers(1, 3)),
            "pivot": index == pivot,
        }
        for name in ("effect", "undo_effect"):
            options[name] = draw(st.sampled_from(EFFECTS))
        if pivot is not None and index >= pivot and draw(st.booleans()):
            options["undo"] = saga.NotUndoable("past the pivot")
        found.append(sagas.step(world, f"s{index}", **options))
    return found


EFFECTS = [
    saga.LOCAL,
    histories.effect(),
    histories.effect(key_lifetime=timedelta(seconds=3)),
    histories.effect(key_lifetime=None),
    histories.effect(probe=print),
    histories.effect(probe=print, key_lifetime=None),
    histories.effect(probe=print, key_lifetime=None, late_probe_suffices=True),
    histories.effect(probe=print, key_lifetime=timedelta(seconds=3), tombstone=print),
    histories.effect(key_lifetime=None, tombstone=print),
    histories.effect(resend_to_learn=True),
]
ANSWERS = ["confirmed", "refused", "not_landed", "unknown", "throttled"]


@settings(max_examples=400, deadline=None)
@given(
    steps(),
    st.lists(st.sampled_from(SIGNS), max_size=40),
    st.lists(st.sampled_from(ANSWERS), max_size=15),
    st.integers(0, 40),
)
def test_every_history_ends_settled_or_named_and_sends_nothing_it_must_not(
    made: list[saga.Step], signs: list[str], answers: list[str], cancel_at: int
) -> None:
    life = Life(saga.Saga("test.random", version=1, steps=made), signs, answers, cancel_at)
    life.live()
    check_end(life)


@settings(max_examples=100, deadline=None)
@given(steps())
def test_a_world_that_only_confirms_ends_confirmed_with_one_attempt_each(
    made: list[saga.Step],
) -> None:
    life = Life(saga.Saga("test.random", version=1, steps=made), [], [], 0)
    life.live()
    assert life.end == actions.Finish(JobState.CONFIRMED)
    assert [e.step for e in life.entries if isinstance(e, Attempt)] == [step.name for step in made]


@settings(max_examples=100, deadline=None)
@given(steps(), st.lists(st.sampled_from(SIGNS), max_size=20), st.data())
def test_the_same_journal_gives_the_same_action(
    made: list[saga.Step], signs: list[str], data: st.DataObject
) -> None:
    life = Life(saga.Saga("test.random", version=1, steps=made), signs, [], 0)
    life.live()
    cut = life.entries[: data.draw(st.integers(0, len(life.entries)))]
    job = planner.Job(histories.JOB, histories.INPUT, life.direction, life.lane)
    both = [
        planner.decide(life.definition, job, operations.fold(cut), life.now, histories.POLICY)
        for _ in range(2)
    ]
    assert both[0] == both[1]


def test_final_outcomes_are_the_two_that_say_so() -> None:
    assert {ReceiptOutcome.CONFIRMED, ReceiptOutcome.REFUSED} == FINAL_OUTCOMES

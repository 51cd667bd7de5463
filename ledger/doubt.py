"""What to do about an operation whose outcome nobody saw: one total function of what is known. Pure.

Nothing is guessed. Evidence that decides is taken before this is asked; here it is about getting some. The same id is
sent again only while the provider still honours it as its key, or after a negative probe that came late enough to prove
that no earlier send can land any more. An operation that the job no longer wants (it goes backward) is never sent again,
except to learn what became of it, where the effect says that there is no other way.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ledger import patience, saga
from ledger.operations import Operation, Sighting


class Verdict(StrEnum):
    ASK = "ask"  # probe the provider
    BURY = "bury"  # tell it to refuse the id from now on
    RESEND = "resend"  # same id, same arguments
    WAIT = "wait"
    NOT_DONE = "not_done"  # proved: it did not happen and will not
    SPENT = "spent"  # proved not to have happened so far, and the attempt budget is used up
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Decision:
    """`at`: when, for what has a time; `why` is for the person who finds the operation blocked."""

    verdict: Verdict
    at: datetime | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What is known of an operation in doubt.

    is_wanted     its direction is the job's
    key_until     until when its id may be sent again as the provider's key; None: it is no key
    clear_at      when no earlier send can land any more and a probe would show it (last possible send + request lifetime
                  + probe lag); None: nobody knows when the last send could have been
    senders_done  every sender has returned or is known to be dead
    negative_at   when a probe last said that it had not landed, since the last attempt; None: never
    asks_left, burials_left, sends_left  budgets
    next_ask_at, next_burial_at, next_send_at  when the wait after the last one of each is over
    """

    now: datetime
    is_wanted: bool
    key_until: datetime | None
    can_probe: bool
    can_bury: bool
    resend_to_learn: bool
    late_probe_suffices: bool
    clear_at: datetime | None
    senders_done: bool
    negative_at: datetime | None
    asks_left: bool
    burials_left: bool
    sends_left: bool
    next_ask_at: datetime
    next_burial_at: datetime
    next_send_at: datetime

    @property
    def key_lives(self) -> bool:
        return self.key_until is not None and self.now < self.key_until

    @property
    def is_late(self) -> bool:
        """The last negative probe was asked when nothing could land any more."""
        return (
            self.negative_at is not None
            and self.clear_at is not None
            and self.negative_at > self.clear_at
        )

    def proof(self) -> dict[str, str]:
        """The evidence of a late negative probe."""
        assert self.is_late, "an early negative probe proves nothing"
        return {"asked_at": str(self.negative_at), "nothing_lands_after": str(self.clear_at)}


def decide(d: Doubt) -> Decision:
    """The one next thing to do. Where there is a probe it is asked first, whatever else is possible."""
    if d.can_probe and d.negative_at is None and d.asks_left:
        return Decision(Verdict.ASK, d.next_ask_at)
    if d.is_wanted:
        return _wanted(d)
    if d.can_bury and d.burials_left:
        return Decision(Verdict.BURY, d.next_burial_at)
    if d.resend_to_learn and not d.can_probe and d.key_lives and d.sends_left:
        return Decision(Verdict.RESEND, d.next_send_at)
    return _by_late_probe(d, Verdict.NOT_DONE)


def _wanted(d: Doubt) -> Decision:
    if d.sends_left and d.key_lives:
        return Decision(Verdict.RESEND, d.next_send_at)
    return _by_late_probe(d, Verdict.RESEND if d.sends_left else Verdict.SPENT)


def _by_late_probe(d: Doubt, proved: Verdict) -> Decision:
    """`proved`, after a negative probe that came late enough; a negative probe asked too early proves nothing."""
    if not d.can_probe:
        return Decision(Verdict.BLOCKED, why="it can be neither sent again nor asked about")
    if d.clear_at is None:
        return Decision(Verdict.BLOCKED, why="nobody knows when it could last have been sent")
    if d.is_late and (d.senders_done or d.late_probe_suffices):
        return Decision(proved, d.next_send_at)
    if d.is_late:
        return Decision(Verdict.BLOCKED, why="it has not landed, but its sender may be alive")
    if not d.asks_left:
        return Decision(Verdict.BLOCKED, why="the provider does not say what became of it")
    is_clear = d.now > d.clear_at
    return Decision(Verdict.ASK, d.next_ask_at) if is_clear else Decision(Verdict.WAIT, d.clear_at)


@dataclass(frozen=True, slots=True)
class Asked:
    """Of which operation, whether its direction is the job's, and its attempt budget."""

    operation_id: str
    is_wanted: bool
    budget: int


def weigh(
    asked: Asked,
    effect: saga.Effect,
    operation: Operation,
    *,
    now: datetime,
    policy: patience.Policy,
) -> Doubt:
    """What the journal says of an operation in doubt, against what its provider promises."""
    last_send, senders_done = operation.last_possible_send(effect.call_seconds)
    probes, burials = operation.answers("probe"), operation.answers("tombstone")
    landing = effect.request_lifetime + effect.probe_lag
    return Doubt(
        now=now,
        is_wanted=asked.is_wanted,
        key_until=patience.key_until(policy, effect, operation),
        can_probe=effect.probe is not None,
        can_bury=effect.tombstone is not None,
        resend_to_learn=effect.resend_to_learn,
        late_probe_suffices=effect.late_probe_suffices,
        clear_at=last_send + landing if last_send is not None else None,
        senders_done=senders_done,
        negative_at=max(map(_asked_at, filter(_is_negative, probes)), default=None),
        asks_left=patience.failures(probes) < asked.budget,
        burials_left=patience.failures(burials) < asked.budget,
        sends_left=operation.budget_used() < asked.budget,
        next_ask_at=patience.ask_again_at(policy, asked.operation_id, probes, now),
        next_burial_at=patience.ask_again_at(policy, asked.operation_id, burials, now),
        next_send_at=patience.send_again_at(policy, asked.operation_id, operation, now),
    )


def _is_negative(probe: Sighting) -> bool:
    return probe.outcome == patience.NOT_LANDED


def _asked_at(probe: Sighting) -> datetime:
    """When the question was put, by the database's clock: an answer may be long on its way."""
    try:
        return datetime.fromisoformat(str(probe.evidence["asked_at"]))
    except (KeyError, ValueError):
        return probe.at

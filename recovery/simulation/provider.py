"""The outside world P: one provider with a book of its own, and no code in common with the engine.

It keeps what it promises, and nothing beyond that: an operation id is a key for `key_lifetime` after it was first received,
a request lands within `request_lifetime` of its sender's last check, a probe is behind by `probe_lag` at most, an id that
was refused or buried has no effect ever. Whether a call is refused, throttled, lost, applied without a reply, held on
the wire and applied late, or sent late by a thread that hangs is drawn for each request, and questions fare no better.
Latest moments are drawn often: a promise is tried at its edge. After `heal` it only confirms.
"""

import hashlib
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from ledger import outcomes
from ledger.saga import Call
from recovery.simulation.chronicle import Chronicle
from recovery.simulation.senders import Life, Sender, Senders
from recovery.simulation.virtual import VirtualClock

REQUEST_LIFETIME = 60.0
KEY_LIFETIME = 1_800.0
PROBE_LAG = 3.0
CALL_SECONDS = 8.0
HANG_SECONDS = (
    65.0  # a thread may sleep so long before its first byte, where nobody promises that it does not
)
LOST = 0.7  # of the requests that fail at a gateway, or whose thread hangs
EDGE = 0.5  # of the draws within a promise are near its end
# What can become of a request, and how often; `double`: the wire delivers it twice.
FORWARD = {
    "confirm": 46,
    "refuse": 7,
    "not_sent": 5,
    "throttle": 5,
    "error": 9,
    "lost_request": 10,
    "lost_reply": 8,
    "held": 8,
    "slow": 5,
    "double": 3,
    "hang": 9,
}
KEYLESS = FORWARD | {"hang": 20, "error": 18}  # where a sender that may be alive matters
BACKWARD = FORWARD | {"refuse": 8, "confirm": 45}
TROUBLE = (0.5, 1, 3, 5)  # of one history: how much goes wrong in it
QUESTION = {
    "confirm": 74,
    "not_sent": 5,
    "throttle": 5,
    "lost_request": 6,
    "lost_reply": 4,
    "slow": 3,
    "hang": 7,
}
BURIAL = QUESTION | {"confirm": 50, "lost_request": 16, "lost_reply": 12}


@dataclass(frozen=True, slots=True)
class Service:
    """One kind of operation, with what P promises for it. `sign`: what it does to the money, +1, -1 or 0; `hangs`: how long
    a thread may sleep before it sends.
    """

    name: str
    sign: int
    keyed: bool
    hangs: float = HANG_SECONDS


@dataclass(frozen=True, slots=True)
class Request:
    at: int  # microseconds, when it was sent
    operation_id: str
    n: int
    kind: str


@dataclass(frozen=True, slots=True)
class Applied:
    """An effect. `is_late`: nobody waited for it any more."""

    at: int
    amount_minor: int
    arguments: Mapping[str, Any]
    is_late: bool = False

    def money(self) -> tuple[int, str]:
        return self.amount_minor, str(self.arguments.get("currency"))


@dataclass(slots=True)
class Entry:
    """All that P knows of one operation id."""

    service: Service
    digest: str = ""  # of the arguments that it first came with
    first_at: int | None = None
    effects: list[Applied] = field(default_factory=list)
    refused: str = ""
    replays: int = 0


Witness = Callable[[str, Service, Call], None]


class Later(Protocol):
    def __call__(
        self, seconds: float, what: Callable[[], None], life: Life | None = None
    ) -> None: ...


class Provider:
    def __init__(self, draw: random.Random, clock: VirtualClock, chronicle: Chronicle) -> None:
        self.requests: list[Request] = []
        self.book: dict[str, Entry] = {}
        # (operation id, kind) of what was throttled: (until when, since when)
        self.not_before: dict[tuple[str, str], tuple[int, int]] = {}
        self.told: dict[tuple[str, int], set[str]] = {}
        self.on_request: Witness = lambda _kind, _service, _call: None
        self.on_effect: Callable[[str], None] = lambda _operation: None
        self.later: Later = lambda _seconds, _what, _life=None: None
        self.senders = Senders()
        self.sender: Sender | None = None  # whose call is being taken
        self.reply_after = 0.0
        self.is_healed = False
        self._silent_until: dict[
            str, int
        ] = {}  # no question about this operation is answered before
        self._draw, self._clock, self._chronicle = draw, clock, chronicle
        self._trouble = draw.choice(TROUBLE)

    def calls(self, service: Service) -> Callable[[Call], outcomes.Outcome]:
        def handler(call: Call) -> outcomes.Outcome:
            odds = FORWARD if service.keyed else KEYLESS
            how = self._how(BACKWARD if service.sign < 0 else odds, call)
            if how == "not_sent":
                raise outcomes.NotSent("connect")
            if how == "hang":
                raise self._hang(service, call)
            self._note("call", service, call)
            if how == "throttle":
                raise self._throttled("call", call)
            return self._serve(how, service, call)

        return handler

    def probes(self, service: Service) -> Callable[[Call], outcomes.Sighted]:
        def look(call: Call) -> outcomes.Sighted:
            as_of = self._clock.micros - round(self._within(PROBE_LAG) * 1e6)
            entry = self.book.get(call.operation_id)
            shown = [e for e in entry.effects if e.at <= as_of] if entry is not None else []
            if shown:
                return _confirmed(call.operation_id, shown[0])
            if entry is not None and entry.refused:
                return outcomes.Refused(entry.refused)
            return outcomes.NotLanded()

        return lambda call: self._answer("probe", service, call, look)

    def buries(self, service: Service) -> Callable[[Call], outcomes.Outcome]:
        def bury(call: Call) -> outcomes.Outcome:
            entry = self._entry(service, call)
            if entry.effects:
                return _confirmed(call.operation_id, entry.effects[0])
            entry.refused = entry.refused or "tombstoned"
            return outcomes.Refused(entry.refused)

        return lambda call: self._answer("tombstone", service, call, bury)

    def _answer[T: outcomes.Sighted](
        self, kind: str, service: Service, call: Call, does: Callable[[Call], T]
    ) -> T:
        """A question, or a burial: lost, done without a reply, or answered, perhaps when nobody waits any more."""
        how = self._how(BURIAL if kind == "tombstone" else QUESTION, call)
        if not self.is_healed and self._clock.micros < self._silent_until.get(call.operation_id, 0):
            how = "hang"
        if how == "not_sent":
            raise outcomes.NotSent("connect")
        self._note(kind, service, call)
        if how == "throttle":
            raise self._throttled(kind, call)
        if how == "lost_request":
            self.reply_after = call.timeout_seconds
            raise outcomes.Unknown("timeout")
        found = does(call)
        if how == "lost_reply":
            raise outcomes.Unknown("reset")
        if how == "slow":
            self.reply_after = call.timeout_seconds * self._draw.uniform(0.2, 1)
        if how == "hang":
            self.reply_after = self._silence(call.operation_id)
        return found

    def _silence(self, operation: str) -> float:
        """Nothing is said of an operation until just after nothing of it can land: an answer then is of another time."""
        now, drawn = self._clock.micros, self._draw.uniform(0.05, 8)
        sent = [r.at for r in self.requests if (r.operation_id, r.kind) == (operation, "call")]
        clear = (sent[-1] if sent else now) + round((REQUEST_LIFETIME + PROBE_LAG) * 1e6)
        if operation not in self._silent_until and not self.is_healed:
            self._silent_until[operation] = clear + round(self._draw.uniform(-2, 4) * 1e6)
        return max(0.0, (max(clear, self._silent_until.get(operation, 0)) - now) / 1e6) + drawn

    def _throttled(self, kind: str, call: Call) -> outcomes.Throttled:
        after = timedelta(seconds=self._draw.randint(1, 20))
        until = self._clock.micros + round(after.total_seconds() * 1e6)
        self.not_before[call.operation_id, kind] = (until, self._clock.micros)
        return outcomes.Throttled(after)

    def _how(self, odds: Mapping[str, int], call: Call) -> str:
        how = "confirm"
        if not self.is_healed:
            confirm = odds["confirm"] / self._trouble
            how = self._draw.choices(list(odds), list({**odds, "confirm": confirm}.values()))[0]
        self.reply_after = self._draw.uniform(0.005, 0.4)
        self._chronicle.count(f"request:{how}")
        self._chronicle.note("asked", call.operation_id, call.n, how)
        return how

    def _note(self, kind: str, service: Service, call: Call) -> None:
        self.requests.append(Request(self._clock.micros, call.operation_id, call.n, kind))
        self.on_request(kind, service, call)

    def _hang(self, service: Service, call: Call) -> outcomes.Unknown:
        """Its thread sleeps past its deadline, then sends after all, and comes back some time after that."""
        assert self.sender is not None, "a call has a sender"
        sender, sleeps = self.sender, self._draw.uniform(call.timeout_seconds, service.hangs)
        latest = self._clock.micros + round(service.hangs * 1e6)
        if self._draw.random() >= LOST:
            self.later(sleeps, lambda: self._send_late(sender, latest, service, call), sender.life)
        self.reply_after = max(sleeps, call.timeout_seconds + 1) + self._draw.uniform(0.1, 120)
        return outcomes.Unknown("reset")

    def _send_late(self, sender: Sender, latest: int, service: Service, call: Call) -> None:
        if sender.may_send() and self._clock.micros <= latest:
            sender.sent_at = self._clock.micros
            self._note("call", service, call)
            self.later(self._on_the_wire(sender), lambda: self._arrive(service, call))

    def _serve(self, how: str, service: Service, call: Call) -> outcomes.Outcome:
        """A request that left its sender."""
        assert self.sender is not None, "a call has a sender"
        if how == "refuse":
            self._decline(service, call)
        is_lost = how == "error" and self._draw.random() < LOST
        if (
            how in ("held", "error", "double")
            and not is_lost
            and (how != "double" or service.keyed)
        ):
            self._chronicle.count(f"wire:{how}")
            self.later(self._on_the_wire(self.sender), lambda: self._arrive(service, call))
        if how == "error":  # of a gateway, which may have passed the request on
            raise outcomes.Unknown("http_502")
        if how in ("held", "lost_request"):
            self.reply_after = call.timeout_seconds
            raise outcomes.Unknown("timeout")
        outcome = self._land(service, call)
        if how == "lost_reply":
            raise outcomes.Unknown("reset")
        if how == "slow":
            self.reply_after = call.timeout_seconds * self._draw.uniform(1.5, 4)
        return outcome

    def _decline(self, service: Service, call: Call) -> None:
        entry = self._entry(service, call)
        if not entry.effects:
            entry.refused = entry.refused or "declined"

    def _arrive(self, service: Service, call: Call) -> None:
        """A request that nobody waits for any more."""
        outcome = self._land(service, call, is_late=True)
        self._chronicle.note("arrived", call.operation_id, call.n, type(outcome).__name__)
        if isinstance(outcome, outcomes.Refused) and outcome.reason == "tombstoned":
            self._chronicle.count("late_call_neutralised")

    def _on_the_wire(self, sender: Sender) -> float:
        """Until when it may land, counted from its sender's last check."""
        left = REQUEST_LIFETIME - (self._clock.micros - sender.sent_at) / 1e6
        return self._within(max(0.0, left))

    def _within(self, most: float) -> float:
        """A time within a promise, often its end."""
        least = 0.95 * most if self._draw.random() < EDGE else 0.0
        return self._draw.uniform(least, most)

    def _entry(self, service: Service, call: Call) -> Entry:
        return self.book.setdefault(call.operation_id, Entry(service))

    def _land(self, service: Service, call: Call, *, is_late: bool = False) -> outcomes.Outcome:
        """A request reaches the provider: replayed, refused, or applied."""
        now, entry = self._clock.micros, self._entry(service, call)
        digest = _digest(call.arguments)
        entry.digest = entry.digest or digest
        if digest != entry.digest:
            self._chronicle.violate("R3", f"{call.operation_id} came with other arguments before")
            return outcomes.Unknown("key_reused")
        entry.first_at = entry.first_at or now
        if entry.refused:
            self._chronicle.count("refused")
            return outcomes.Refused(entry.refused)
        if entry.effects and service.keyed and now - entry.first_at <= KEY_LIFETIME * 1e6:
            entry.replays += 1
            self._chronicle.count("duplicate_absorbed")
            return _confirmed(call.operation_id, entry.effects[0])
        amount = service.sign * int(call.arguments.get("amount_minor", 0))
        entry.effects.append(Applied(now, amount, dict(call.arguments), is_late))
        self._chronicle.note("applied", call.operation_id, amount)
        self.on_effect(call.operation_id)
        return _confirmed(call.operation_id, entry.effects[-1])


def _digest(arguments: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()


def _confirmed(operation: str, effect: Applied) -> outcomes.Confirmed:
    """As the book has it, whatever was asked."""
    return outcomes.Confirmed(ref=f"P:{operation}", data=dict(effect.arguments))

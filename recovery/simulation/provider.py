"""The outside world P: one provider with a book of its own, and no code in common with the engine.

It keeps what it promises, and nothing beyond that: an operation id is a key for `key_lifetime` after it was first received,
a request lands within `request_lifetime` of its sender's last check, a probe is behind by `probe_lag` at most, an id that
was refused or buried has no effect ever. Whether a call is refused, throttled, lost, applied without a reply, or held on
the wire and applied late is drawn for each request. After `heal` it only confirms.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ledger import canonical, outcomes
from ledger.saga import Call
from recovery.simulation.chronicle import Chronicle
from recovery.simulation.virtual import VirtualClock

REQUEST_LIFETIME = 60.0
KEY_LIFETIME = 1_800.0
PROBE_LAG = 3.0
CALL_SECONDS = 8.0
# What can become of a request, and how often; `double`: the wire delivers it twice.
FORWARD = {
    "confirm": 46,
    "refuse": 7,
    "not_sent": 5,
    "throttle": 5,
    "error": 4,
    "lost_request": 6,
    "lost_reply": 8,
    "held": 8,
    "slow": 5,
    "double": 3,
}
BACKWARD = FORWARD | {"refuse": 1, "confirm": 52}
TROUBLE = (0.5, 1, 1, 4)  # of one history: how much goes wrong in it
QUESTION = {"confirm": 80, "not_sent": 6, "throttle": 6, "lost_request": 8}


@dataclass(frozen=True, slots=True)
class Service:
    """One kind of operation, with what P promises for it. `sign`: what it does to the money, +1, -1 or 0."""

    name: str
    sign: int
    keyed: bool


@dataclass(frozen=True, slots=True)
class Request:
    at: int  # microseconds, when it was sent
    operation_id: str
    n: int
    kind: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Applied:
    at: int
    amount_minor: int
    arguments: Mapping[str, Any]


@dataclass(slots=True)
class Entry:
    """All that P knows of one operation id."""

    service: Service
    first_at: int | None = None
    effects: list[Applied] = field(default_factory=list)
    refused: str = ""
    replays: int = 0


Witness = Callable[[str, Service, Call], None]
Later = Callable[[float, Callable[[], None]], None]


class Provider:
    def __init__(self, draw: random.Random, clock: VirtualClock, chronicle: Chronicle) -> None:
        self.requests: list[Request] = []
        self.book: dict[str, Entry] = {}
        # (operation id, kind) of what was throttled: (until when, since when)
        self.not_before: dict[tuple[str, str], tuple[int, int]] = {}
        self.told: dict[tuple[str, int], set[str]] = {}
        self.on_request: Witness = lambda _kind, _service, _call: None
        self.on_effect: Callable[[str], None] = lambda _operation: None
        self.later: Later = lambda _seconds, _what: None
        self.reply_after = 0.0
        self.checked_at = 0  # when the sender last looked at its lease
        self.is_healed = False
        self._draw, self._clock, self._chronicle = draw, clock, chronicle
        self._trouble = draw.choice(TROUBLE)

    def calls(self, service: Service) -> Callable[[Call], outcomes.Outcome]:
        def handler(call: Call) -> outcomes.Outcome:
            odds = BACKWARD if service.sign < 0 else FORWARD
            how = self._how(odds, call)
            if how == "not_sent":
                raise outcomes.NotSent("connect")
            self._note("call", service, call)
            if how == "throttle":
                raise self._throttled("call", call)
            return self._serve(how, service, call)

        return handler

    def probes(self, service: Service) -> Callable[[Call], outcomes.Sighted]:
        def probe(call: Call) -> outcomes.Sighted:
            self._ask("probe", service, call)
            as_of = self._clock.micros - round(self._draw.uniform(0, PROBE_LAG) * 1e6)
            entry = self.book.get(call.operation_id)
            if entry is not None and any(e.at <= as_of for e in entry.effects):
                return _confirmed(call)
            if entry is not None and entry.refused:
                return outcomes.Refused(entry.refused)
            return outcomes.NotLanded()

        return probe

    def buries(self, service: Service) -> Callable[[Call], outcomes.Outcome]:
        def tombstone(call: Call) -> outcomes.Outcome:
            self._ask("tombstone", service, call)
            entry = self.book.setdefault(call.operation_id, Entry(service))
            if entry.effects:
                return _confirmed(call)
            entry.refused = entry.refused or "tombstoned"
            return outcomes.Refused(entry.refused)

        return tombstone

    def _ask(self, kind: str, service: Service, call: Call) -> None:
        how = self._how(QUESTION, call)
        if how == "not_sent":
            raise outcomes.NotSent("connect")
        self._note(kind, service, call)
        if how == "throttle":
            raise self._throttled(kind, call)
        if how == "lost_request":
            self.reply_after = call.timeout_seconds
            raise outcomes.Unknown("timeout")

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
        digest = canonical.fingerprint(call.arguments)
        self.requests.append(Request(self._clock.micros, call.operation_id, call.n, kind, digest))
        self.on_request(kind, service, call)

    def _serve(self, how: str, service: Service, call: Call) -> outcomes.Outcome:
        """A request that left its sender."""
        if how == "error":
            raise outcomes.Unknown("http_500")
        if how == "refuse":
            self._decline(service, call)
        if how == "held" or (how == "double" and service.keyed):
            self._chronicle.count(f"wire:{how}")
            self.later(self._on_the_wire(), lambda: self._arrive(service, call))
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
        entry = self.book.setdefault(call.operation_id, Entry(service))
        if not entry.effects:
            entry.refused = entry.refused or "declined"

    def _arrive(self, service: Service, call: Call) -> None:
        """A request that nobody waits for any more."""
        outcome = self._land(service, call)
        self._chronicle.note("arrived", call.operation_id, call.n, type(outcome).__name__)
        if isinstance(outcome, outcomes.Refused):
            self._chronicle.count("late_call_neutralised")

    def _on_the_wire(self) -> float:
        """Until when it may land, counted from its sender's last check."""
        left = REQUEST_LIFETIME - (self._clock.micros - self.checked_at) / 1e6
        return self._draw.uniform(0, max(0.0, left))

    def _land(self, service: Service, call: Call) -> outcomes.Outcome:
        """A request reaches the provider: replayed, refused, or applied."""
        now, entry = self._clock.micros, self.book.setdefault(call.operation_id, Entry(service))
        if entry.refused:
            self._chronicle.count("refused")
            entry.first_at = entry.first_at or now
            return outcomes.Refused(entry.refused)
        entry.first_at = entry.first_at or now
        honours = service.keyed and now - entry.first_at <= KEY_LIFETIME * 1e6
        if entry.effects and honours:
            entry.replays += 1
            self._chronicle.count("duplicate_absorbed")
            return _confirmed(call)
        amount = service.sign * int(call.arguments.get("amount_minor", 0))
        entry.effects.append(Applied(now, amount, call.arguments))
        self._chronicle.note("applied", call.operation_id, amount)
        self.on_effect(call.operation_id)
        return _confirmed(call)


def _confirmed(call: Call) -> outcomes.Confirmed:
    return outcomes.Confirmed(ref=f"P:{call.operation_id}", data=dict(call.arguments))

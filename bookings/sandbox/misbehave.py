"""Rules of misbehaviour: which request is to be treated badly, how, how often and with what
chance.

Invariant: whether a rule fires for an operation's n-th request depends on the seed, the rule, the
operation id and n alone, never on what other requests came in between; so a run can be repeated
whatever the order of arrival. (A limit `times` counts firings over all operations, and thereby
does depend on the order: use `operation` or `subject` with it.) Rules, latency and outage live in
memory: a restarted sandbox is an honest one.
"""

import fnmatch
import hashlib
import itertools
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KINDS = ("capture", "refund", "ticket", "probe", "tombstone")
KNOWN = ("name", "match", "subject", "operation", "probability", "times", "do", "seed")
OUTAGES = ("close", "error", "refuse")


class RuleError(Exception):
    """A rule that makes no sense; says which and why."""


@dataclass(slots=True)
class Rule:
    """One rule. `params` are those of its action; see `actions` for each one's."""

    name: str
    do: str
    match: str = "*"
    subject: str = "*"
    operation: str = "*"
    probability: float = 1.0
    times: int | None = None
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    fired: int = 0
    asked: Counter[str] = field(default_factory=Counter)

    def fires(self, *, kind: str, subject: str, operation: str) -> bool:
        """Decide about one request, and count it."""
        if not (
            fnmatch.fnmatchcase(kind, self.match)
            and fnmatch.fnmatchcase(subject, self.subject)
            and fnmatch.fnmatchcase(operation, self.operation)
        ):
            return False
        if self.times is not None and self.fired >= self.times:
            return False
        self.asked[operation] += 1
        if draw(self.seed, self.name, operation, self.asked[operation]) >= self.probability:
            return False
        self.fired += 1
        return True

    def shown(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "do": self.do,
            "match": self.match,
            "subject": self.subject,
            "operation": self.operation,
            "probability": self.probability,
            "times": self.times,
            "fired": self.fired,
            **self.params,
        }


def draw(*parts: object) -> float:
    """A number in [0, 1) that follows from `parts` alone."""
    digest = hashlib.sha256("|".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


class Manners:
    """How the sandbox behaves at present: rules, latency, outage, whether it honours keys."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rules: list[Rule] = []
        self.honours_keys = True
        self.outage = ""
        self._names = itertools.count(1)
        self._up_at: float | None = None
        self._mean_seconds = 0.0
        self._jitter = 0.0
        self._delayed: Counter[str] = Counter()

    def choose(self, *, kind: str, subject: str, operation: str) -> Rule | None:
        """The first rule that fires."""
        for rule in self.rules:
            if rule.fires(kind=kind, subject=subject, operation=operation):
                return rule
        return None

    def set_rules(
        self, given: list[Mapping[str, Any]], *, replaces: bool, known_actions: Mapping[str, Any]
    ) -> None:
        """All of them or, where one is wrong, none."""
        fresh = [self._read(number, rule, known_actions) for number, rule in enumerate(given)]
        self.rules = fresh if replaces else [*self.rules, *fresh]

    def set_outage(self, how: str, seconds: float | None) -> None:
        if how not in OUTAGES:
            raise RuleError(f"how: one of {', '.join(OUTAGES)} is needed")
        if how == "refuse" and seconds is None:
            raise RuleError("seconds: needed with how=refuse, which takes the way back in away too")
        self.outage = how
        self._up_at = None if seconds is None else time.monotonic() + seconds

    def end_outage(self) -> None:
        self.outage, self._up_at = "", None

    def is_down(self) -> bool:
        if self.outage and self._up_at is not None and time.monotonic() >= self._up_at:
            self.end_outage()
        return bool(self.outage)

    def set_latency(self, *, mean_seconds: float, jitter: float) -> None:
        self._mean_seconds, self._jitter = mean_seconds, jitter
        self._delayed.clear()

    def latency(self, operation: str) -> float:
        """Seconds to wait before this request: the mean, up to `jitter` (a part of it) more or
        less.
        """
        if self._mean_seconds <= 0:
            return 0.0
        self._delayed[operation] += 1
        luck = draw(self.seed, "latency", operation, self._delayed[operation])
        return self._mean_seconds * (1 + self._jitter * (2 * luck - 1))

    def _read(self, number: int, given: Mapping[str, Any], known: Mapping[str, Any]) -> Rule:
        where = f"rules/{number}"
        if not isinstance(given, Mapping):
            raise RuleError(f"{where}: an object is needed")
        if given.get("do") not in known:
            raise RuleError(f"{where}/do: one of {', '.join(sorted(known))} is needed")
        rule = Rule(
            name=str(given.get("name", f"rule-{next(self._names)}")),
            do=given["do"],
            match=_text(where, given, "match"),
            subject=_text(where, given, "subject"),
            operation=_text(where, given, "operation"),
            probability=_number(where, given, "probability", 1.0),
            times=given.get("times"),
            seed=given.get("seed", self.seed),
            params={name: value for name, value in given.items() if name not in KNOWN},
        )
        _check(where, rule)
        return rule


def _check(where: str, rule: Rule) -> None:
    if not 0 <= rule.probability <= 1:
        raise RuleError(f"{where}/probability: 0 to 1 is needed")
    if type(rule.seed) is not int:
        raise RuleError(f"{where}/seed: an integer is needed")
    if rule.times is not None and (type(rule.times) is not int or rule.times < 0):
        raise RuleError(f"{where}/times: null or an integer from 0 is needed")
    if not any(fnmatch.fnmatchcase(kind, rule.match) for kind in KINDS):
        raise RuleError(f"{where}/match: matches none of {', '.join(KINDS)}")


def _text(where: str, given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "*")
    if not isinstance(value, str):
        raise RuleError(f"{where}/{name}: a glob is needed")
    return value


def _number(where: str, given: Mapping[str, Any], name: str, default: float) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RuleError(f"{where}/{name}: a number is needed")
    return float(value)

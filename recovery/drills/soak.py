"""The windows of the soak: the faults of `mixed`, and those that take too long, or too much of the machine, for a drill.

Shows that promises hold together over many jobs. The seed deals every fault and every manner of the provider out of a deck,
so that none is left to chance: a few windows have met them all. Within a window they overlap: a partition mends by itself,
held tickets come back, and a clock stays wrong, while the next fault strikes.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from recovery.drills import (
    delivery,
    faults,
    hasty,
    judge,
    mixed,
    operators,
    partitions,
    runner,
    skew,
)
from recovery.drills import place as names
from recovery.drills.later import Later
from recovery.drills.run import Drill, Run, declines
from recovery.drills.surroundings import Surroundings, Tickets

FEWEST, MOST, MANNERS = 4, 5, 5
SKEW = "clock skewed"
OUTAGE_SHORTEST, OUTAGE_LONGEST = 2.0, 6.0
KEY_SECONDS = 12.0  # how long the provider honours a key: some operations outlive theirs
ASKED = """
SELECT g.outcome, count(*) FROM ledger_submission s JOIN ledger_sighting g ON g.job_id = s.job_id
WHERE starts_with(s.key, %s) AND g.kind IN ('probe', 'tombstone') GROUP BY 1
"""
# The captures of jobs that went back: one that arrives late was refused, absorbed, or found and undone.
GONE_BACK = """
SELECT j.id || ':capture_payment:forward' FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s) AND j.state IN ('compensated', 'refused')
"""
BOTH = """
SELECT count(*) FROM (SELECT c.job_id FROM ledger_submission s JOIN ledger_checkpoint c ON c.job_id = s.job_id
WHERE starts_with(s.key, %s) GROUP BY 1 HAVING count(DISTINCT c.format) > 1) AS found
"""
Fault = Callable[[Run, Surroundings], None]
Hands = tuple[Surroundings, Later]


def outage(run: Run, place: Surroundings) -> None:
    seconds = run.chance.uniform(OUTAGE_SHORTEST, OUTAGE_LONGEST)
    run.watch.fault("provider away")
    place.sandbox.go_down(run.chance.choice(("close", "error")), seconds)
    run.seen["outages"] += 1
    run.note("the provider is away, wholly, for some seconds")


def two_builds(run: Run, place: Surroundings) -> None:
    """A worker of another build, which writes the checkpoint format before the present one."""
    run.watch.fault("two builds")
    place.restart(names.SECOND, {"BUILD": "soak-before", "CHECKPOINT_FORMAT": "1"})
    run.seen["builds"] += 1
    run.note(f"{names.SECOND} as another build, with checkpoints of the format before")


MORE_FAULTS: Mapping[str, Fault] = {
    "staff at random": operators.strike,
    "hasty sweeps": hasty.strike,
    "provider away": outage,
    "two builds": two_builds,
}
LATER_FAULTS = ("partition", SKEW, "tickets held")  # whose end comes by itself
MORE_MANNERS: tuple[Mapping[str, Any], ...] = (
    {"do": "in_flight", "match": "*", "probability": 0.05},
    {"do": "hang", "match": "*", "probability": 0.04, "seconds": 5.0},
    {"do": "drip", "match": "*", "probability": 0.05, "interval": 0.02},
    {"do": "redirect", "match": "*", "probability": 0.04},
    {"do": "wrong_type", "match": "*", "probability": 0.04},
    {"do": "huge", "match": "*", "probability": 0.04},
    {"do": "gzipped", "match": "*", "probability": 0.04},
    {"do": "other_currency", "match": "capture", "probability": 0.02},
    {"do": "other_subject", "match": "capture", "probability": 0.02},
    {"do": "other_operation", "match": "*", "probability": 0.02},
    {"do": "stored_500", "match": "capture", "probability": 0.03},
)


@dataclass(slots=True)
class Window:
    """What the seed deals to one window."""

    faults: Sequence[str]
    manners: Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class Kept:
    """What one window leaves to the next."""

    late: Tickets = field(default_factory=list)


def deal(seed: int, windows: int, possible: Sequence[str]) -> list[Window]:
    """Out of decks that are shuffled anew only when they are empty."""
    chance = random.Random(f"{seed} soak")  # noqa: S311  a schedule, no secret
    kinds = _deck(chance, possible)
    manners = _deck(chance, (*mixed.MANNERS, *MORE_MANNERS))
    return [
        Window(_hand(kinds, chance.randint(FEWEST, MOST)), _hand(manners, MANNERS))
        for _ in range(windows)
    ]


def possible(own_servers: frozenset[str], *, has_faketime: bool) -> list[str]:
    """The faults that can be had here."""
    there = [name for name, (_, needs) in mixed.FAULTS.items() if needs <= own_servers]
    there += [*MORE_FAULTS, *LATER_FAULTS]
    return [name for name in there if name != SKEW or has_faketime]


def drills(windows: Sequence[Window]) -> list[Drill]:
    kept = Kept()
    return [
        Drill(
            name=f"soak-{number}",
            done=f"{', '.join(window.faults)}; the provider: {', '.join(m['do'] for m in window.manners)}.",
            faults=partial(play, window, kept),
            must_see=("faults",),
            recovers="end",
        )
        for number, window in enumerate(windows, 1)
    ]


def play(window: Window, kept: Kept, run: Run) -> None:
    place = run.place
    assert isinstance(place, Surroundings), "the soak brings a place of its own"
    later = Later()
    place.sandbox.misbehave(*window.manners, *declines(), seed=run.chance.randrange(2**31))
    place.sandbox.forget_keys_after(KEY_SECONDS)
    place.put_tickets(kept.late)
    run.seen["tickets_after_the_end"] += len(kept.late)
    kept.late = []
    try:
        _strike_all(window, kept, run, (place, later))
    finally:
        later.finish()
        place.restore()
    runner.heal(place)
    run.violations += place.dead_lines()
    operators.clear_desk(run, place)
    look_back(run)


def _strike_all(window: Window, kept: Kept, run: Run, hands: Hands) -> None:
    struck = 0
    while not run.load.is_over() or struck < len(window.faults):
        dealt = struck < len(window.faults)
        name = window.faults[struck] if dealt else run.chance.choice(window.faults)
        faults.safely(partial(_strike, name, kept, hands), run)
        run.seen["faults"] += 1
        run.seen[f"fault: {name}"] += 1
        struck += 1
        run.place.wait_until(run.load.is_over, mixed.PAUSE_SECONDS * run.chance.random())


def _strike(name: str, kept: Kept, hands: Hands, run: Run) -> None:
    place, later = hands
    if name in MORE_FAULTS:
        MORE_FAULTS[name](run, place)
    elif name == "partition":
        partitions.strike(run, place, later)
    elif name == SKEW:
        skew.strike(run, place, later)
    elif name == "tickets held":
        kept.late += delivery.strike(run, place, later)
    else:
        mixed.FAULTS[name][0](run)


def look_back(run: Run) -> None:
    """What the window's jobs and the provider's books tell of it."""
    asked: dict[str, int] = dict(run.place.sql(ASKED, [run.load.prefix]))
    run.seen["found_landed"] = asked.pop("confirmed", 0)
    run.seen["found_otherwise"] = sum(asked.values())
    run.seen["driven_by_both_builds"] = run.place.sql(BOTH, [run.load.prefix])[0][0]
    requests = run.place.sandbox.requests(after=run.begun.requests)
    run.seen["waits_obeyed"] = judge.obeyed_waits(requests, 1.0)[0]
    late = {one["operation_id"] for one in requests if one["action"] == "hold"}
    gone_back = {row[0] for row in run.place.sql(GONE_BACK, [run.load.prefix])}
    run.seen["late_neutralised"] = len(late & gone_back)
    run.seen.update(f"provider: {one['action']}" for one in requests if one["action"])


def _deck[Card](chance: random.Random, cards: Sequence[Card]) -> Iterator[Card]:
    """Without end: each card once, in an order of its own, and again."""
    while True:
        yield from chance.sample(cards, len(cards))


def _hand[Card](deck: Iterator[Card], count: int) -> list[Card]:
    """So many different cards: one that comes twice, where a deck ends, is passed over."""
    found: list[Card] = []
    while len(found) < count:
        card = next(deck)
        if card not in found:
            found.append(card)
    return found

"""The provider's books against our ledger: every operation, every booking, every room night.

The books are the second witness: the sandbox wrote down what it did without asking us. Kept here:
an effect and its receipt are the same thing seen twice, so either without the other, or two of one,
or another amount, is a difference, and a single difference means that the books do not agree.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CONFIRMED, REFUSED = "confirmed", "refused"
# What an operation of ours is called in the provider's books.
KINDS: Mapping[tuple[str, str], str] = {
    ("capture_payment", "forward"): "capture",
    ("capture_payment", "backward"): "refund",
    ("issue_ticket", "forward"): "ticket",
}
Nights = Counter[tuple[str, str]]
"""Rooms taken, by (room type, night)."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that the provider did, as its books have it."""

    operation_id: str
    kind: str
    subject: str
    amount_minor: int | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The final receipt of one operation, as the ledger has it."""

    operation_id: str
    kind: str
    outcome: str
    amount_minor: int | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class Booked:
    """A booking and how its job ended; `reason` is why it is parked."""

    id: str
    state: str
    amount_minor: int
    currency: str
    reason: str = ""


@dataclass(slots=True)
class Totals:
    """Money by currency, and tickets."""

    charged: Counter[str] = field(default_factory=Counter)
    refunded: Counter[str] = field(default_factory=Counter)
    tickets: int = 0

    def add(self, kind: str, amount_minor: int | None, currency: str | None) -> None:
        if kind == "ticket":
            self.tickets += 1
        else:
            side = self.charged if kind == "capture" else self.refunded
            side[currency or ""] += amount_minor or 0


@dataclass(slots=True)
class Comparison:
    """What the provider says and what we say; `differences` names each place where they part."""

    theirs: Totals = field(default_factory=Totals)
    ours: Totals = field(default_factory=Totals)
    doubled: int = 0
    forgotten: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def agree(self) -> bool:
        return not (self.differences or self.doubled or self.forgotten)


def compare(
    effects: Sequence[Effect], receipts: Iterable[Receipt], bookings: Iterable[Booked]
) -> Comparison:
    """Operation by operation, then booking by booking."""
    found = Comparison()
    by_operation: dict[str, list[Effect]] = defaultdict(list)
    by_subject: dict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        by_operation[effect.operation_id].append(effect)
        by_subject[effect.subject].append(effect)
        found.theirs.add(effect.kind, effect.amount_minor, effect.currency)
    finals = {receipt.operation_id: receipt for receipt in receipts}
    for receipt in finals.values():
        if receipt.outcome == CONFIRMED:
            found.ours.add(receipt.kind, receipt.amount_minor, receipt.currency)
    for operation in sorted(by_operation.keys() | finals.keys()):
        _compare_operation(found, operation, by_operation[operation], finals.get(operation))
    for booking in bookings:
        problem = _booking_problem(booking, by_subject[booking.id])
        if problem:
            found.differences.append(f"booking {booking.id}: {problem}")
    return found


def compare_summary(comparison: Comparison, summary: Mapping[str, Any]) -> list[str]:
    """The provider's own totals against those of the effects that we read: did we read all of its books?"""
    theirs = comparison.theirs
    said = {
        "charged": summary["captures"]["amount_minor"],
        "refunded": summary["refunds"]["amount_minor"],
        "tickets": summary["tickets"],
        "doubled": summary["doubled"],
    }
    read = {
        "charged": dict(theirs.charged),
        "refunded": dict(theirs.refunded),
        "tickets": theirs.tickets,
        "doubled": comparison.doubled,
    }
    return [
        f"{name}: the provider's summary says {said[name]}, its books {read[name]}"
        for name in said
        if said[name] != read[name]
    ]


def compare_rooms(before: Nights, after: Nights, confirmed: Nights) -> list[str]:
    """Rooms that were taken meanwhile must be those of the confirmed bookings, night by night."""
    return [
        f"room type {room_type}, night {night}: {after[room_type, night] - before[room_type, night]} "
        f"more taken, {confirmed[room_type, night]} confirmed"
        for room_type, night in sorted(before.keys() | after.keys() | confirmed.keys())
        if after[room_type, night] - before[room_type, night] != confirmed[room_type, night]
    ]


def _compare_operation(
    found: Comparison, operation: str, effects: Sequence[Effect], receipt: Receipt | None
) -> None:
    if len(effects) > 1:
        found.doubled += 1
        found.differences.append(f"{operation}: done {len(effects)} times")
    if effects and receipt is None:
        found.forgotten += 1
        found.differences.append(f"{operation}: in the provider's books, without a receipt of ours")
    if receipt is None:
        return
    if receipt.outcome == REFUSED and effects:
        found.differences.append(f"{operation}: refused, yet in the provider's books")
    if receipt.outcome == CONFIRMED and not effects:
        found.differences.append(f"{operation}: confirmed, yet not in the provider's books")
    if receipt.outcome == CONFIRMED:
        found.differences += [
            f"{operation}: {_shown(effect)} in the provider's books, {_shown(receipt)} in ours"
            for effect in effects
            if _shown(effect) != _shown(receipt)
        ]


def _shown(one: Effect | Receipt) -> str:
    if one.kind == "ticket":
        return one.kind
    return f"{one.kind} of {one.amount_minor} {one.currency}"


def _booking_problem(booking: Booked, effects: Sequence[Effect]) -> str:
    totals = Totals()
    for effect in effects:
        totals.add(effect.kind, effect.amount_minor, effect.currency)
    net = Counter(totals.charged)
    net.subtract(totals.refunded)
    paid = {currency: amount for currency, amount in net.items() if amount}
    match booking.state:
        case "confirmed":
            expected, tickets = {booking.currency: booking.amount_minor}, 1
        case "refused" | "compensated":
            expected, tickets = {}, 0
        case _:
            return " ".join(filter(None, ("is not settled:", booking.state, booking.reason)))
    if (paid, totals.tickets) == (expected, tickets):
        return ""
    return f"{booking.state}, but paid {paid} with {totals.tickets} tickets, not {expected} with {tickets}"

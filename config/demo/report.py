"""The end of the demo: the provider's books against ours in one table, how the bookings ended, and
what to do next.

Kept here: what is printed is what was compared; a reader who copies the one command gets told what
it needs to work.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from bookings import hotel_data
from config.demo import records
from config.demo.stage import Stage
from recovery import books

DIFFERENCES_SHOWN = 20
CURL = """curl -i http://127.0.0.1:8000/v1/bookings \\
  -H 'Authorization: Bearer KEY' -H 'Idempotency-Key: my-first-booking' \\
  -H 'Content-Type: application/json' \\
  -d '{{"hotel": "{hotel}", "room_type": "{room_type}", "arrival": "{arrival}", "nights": {nights}}}'"""


@dataclass(slots=True)
class Result:
    """All that the demo found out. `outcomes` are those of the replay, by state."""

    scenes: dict[str, bool] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    comparison: books.Comparison = field(default_factory=books.Comparison)
    killed_workers: int = 0
    first_booking_s: float = 0.0
    seconds: float = 0.0

    @property
    def books_agree(self) -> bool:
        return self.comparison.agree

    @property
    def is_good(self) -> bool:
        return bool(self.scenes) and all(self.scenes.values()) and self.books_agree

    def as_json(self) -> dict[str, object]:
        return {
            "scenes": self.scenes,
            "bookings": self.outcomes.total(),
            "books_agree": self.books_agree,
            "killed_workers": self.killed_workers,
            "first_booking_s": round(self.first_booking_s, 1),
            "seconds": round(self.seconds, 1),
            "outcomes": dict(self.outcomes),
        }


def compare(stage: Stage) -> books.Comparison:
    """Everything that was booked on this stage, against everything that the provider did."""
    ours = list(stage.booked)
    bookings = records.read_bookings(ours)
    effects = records.effects_of(stage.sandbox.effects())
    found = books.compare(effects, records.read_receipts(ours), bookings)
    found.differences += books.compare_summary(found, stage.sandbox.summary())
    found.differences += books.compare_rooms(
        stage.rooms_before, records.read_taken(), records.read_confirmed_nights(ours)
    )
    accepted = records.count_accepted(stage.prefix)
    if accepted != len(ours) or len(bookings) != len(ours):
        found.differences.append(
            f"{len(ours)} bookings were accepted, {accepted} submissions and {len(bookings)} bookings are stored"
        )
    return found


def show(console: Console, result: Result) -> None:
    """The table, the outcomes, and each difference by name."""
    console.print()
    console.print(_table(result.comparison))
    endings = ", ".join(f"{count} {state}" for state, count in result.outcomes.items())
    console.print(f"replay     {result.outcomes.total()} real bookings: {endings}", highlight=False)
    console.print(f"killed     {result.killed_workers} workers with kill -9", highlight=False)
    scenes = ", ".join(f"{name} {'ok' if ok else 'WRONG'}" for name, ok in result.scenes.items())
    console.print(f"scenes     {scenes}", highlight=False, soft_wrap=True)
    differences = result.comparison.differences
    for difference in differences[:DIFFERENCES_SHOWN]:
        console.print(f"WRONG      {difference}", highlight=False, markup=False, soft_wrap=True)
    if len(differences) > DIFFERENCES_SHOWN:
        console.print(
            f"           and {len(differences) - DIFFERENCES_SHOWN} more", highlight=False
        )
    verdict = "The books agree." if result.books_agree else "THE BOOKS DO NOT AGREE."
    console.print(f"{verdict}\n", style="bold green" if result.books_agree else "bold red")


def show_next(console: Console, api_url: str, stay: hotel_data.Stay) -> None:
    """Where the API was, and how to have one that stays."""
    command = CURL.format(
        hotel=hotel_data.HOTEL,
        room_type=stay.room_type,
        arrival=stay.arrival,
        nights=stay.nights,
    )
    console.print(f"The API was at {api_url}; the demo stops all that it started.", highlight=False)
    console.print("Next: run `make up`, put the key that it prints in place of KEY, and copy:\n")
    console.print(command, highlight=False, markup=False, soft_wrap=True)


def _table(found: books.Comparison) -> Table:
    table = Table(title="The money, told twice")
    table.add_column("")
    table.add_column("the provider's books", justify="right")
    table.add_column("our ledger", justify="right")
    table.add_row("charged", _money(found.theirs.charged), _money(found.ours.charged))
    table.add_row("refunded", _money(found.theirs.refunded), _money(found.ours.refunded))
    table.add_row("tickets", str(found.theirs.tickets), str(found.ours.tickets))
    table.add_row("doubled", str(found.doubled), "")
    table.add_row("forgotten", str(found.forgotten), "")
    return table


def _money(amounts: Mapping[str, int]) -> str:
    shown = [f"{a // 100:,}.{a % 100:02} {currency}" for currency, a in sorted(amounts.items())]
    return ", ".join(shown) or "0"

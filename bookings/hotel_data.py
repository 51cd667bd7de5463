"""Reads the replay's hotel (bookings/data/README.md) and works out its rates and capacities. Pure: no database.

One hotel, `RESORT`. Dates move forward by whole years of 52 weeks: weekdays stay what they were, seasons nearly so, and
loading again within the year gives the same dates. The months of rates and capacities are those of the moved dates.
Money is parsed from its text, never through a float.
"""

import csv
import gzip
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from statistics import median_low

from bookings import requests

SOURCE = Path(__file__).resolve().parent / "data" / "resort_bookings.csv.gz"
HOTEL = "RESORT"
HOTEL_NAME = "Resort hotel, Algarve"
TIMEZONE = "Europe/Lisbon"
CURRENCY = "EUR"
FIRST_ARRIVAL_AFTER = timedelta(weeks=1)
YEAR = timedelta(weeks=52)
CONTENTION_TENTHS = 1  # of the rooms that were once taken, this many tenths are left out


@dataclass(frozen=True, slots=True)
class Stay:
    """One booking of the data; `rate_minor` is its nightly rate."""

    tenant: str
    room_type: str
    arrival: date
    nights: int
    rate_minor: int

    def dates(self) -> Iterator[date]:
        return (self.arrival + timedelta(days=offset) for offset in range(self.nights))


@dataclass(frozen=True, slots=True)
class Month:
    """Nightly rate and capacity of one room type in one month."""

    room_type: str
    month: date
    rate_minor: int
    capacity: int


@dataclass(slots=True)
class Replay:
    """The stays to book again, in the order in which they were booked, and what was left out and why."""

    stays: list[Stay] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[Stay]:
        return iter(self.stays)

    def __len__(self) -> int:
        return len(self.stays)


@cache
def read() -> tuple[Stay, ...]:
    """Every stay of the data, dates as they were, in the order in which they were booked."""
    with gzip.open(SOURCE, "rt", encoding="ascii", newline="") as file:
        return tuple(
            Stay(
                tenant=row["agent"],
                room_type=row["room_type"],
                arrival=date.fromisoformat(row["arrival"]),
                nights=int(row["nights"]),
                rate_minor=minor_units(row["rate_eur"]),
            )
            for row in csv.DictReader(file)
        )


def minor_units(text: str) -> int:
    """Cents of a decimal number of euros; ValueError where it has a fraction of a cent."""
    cents = Decimal(text).scaleb(2)
    if cents != cents.to_integral_value():
        raise ValueError(f"{text} EUR is not a whole number of cents")
    return int(cents)


def first_arrival() -> date:
    return min(stay.arrival for stay in read())


def shift_for(today: date) -> timedelta:
    """Whole years of 52 weeks after which the first arrival lies at least a week ahead of `today`."""
    missing = today + FIRST_ARRIVAL_AFTER - first_arrival()
    return max(-(-missing // YEAR), 0) * YEAR


def tenants() -> list[str]:
    return sorted({stay.tenant for stay in read()})


def months(shift: timedelta) -> list[Month]:
    """Every month in which a room type had a guest. One without an arrival takes the room type's overall median."""
    stays = [replace(stay, arrival=stay.arrival + shift) for stay in read()]
    rates, overall = _rates(stays)
    return [
        Month(room_type, month, rates.get((room_type, month), overall[room_type]), _less_some(peak))
        for (room_type, month), peak in sorted(_peaks(stays).items())
    ]


def stays(limit: int, shift: timedelta) -> Replay:
    """The first `limit` stays that the API takes, moved by `shift`; those it would not take are counted."""
    replay = Replay()
    for stay in read():
        if len(replay.stays) == limit:
            break
        if stay.nights > requests.NIGHTS_MAX:
            replay.skipped["too_long"] += 1
        else:
            replay.stays.append(replace(stay, arrival=stay.arrival + shift))
    return replay


def _rates(stays: Iterable[Stay]) -> tuple[dict[tuple[str, date], int], dict[str, int]]:
    """Median nightly rate per room type and arrival month, and per room type; of an even number, the lower one."""
    monthly: dict[tuple[str, date], list[int]] = defaultdict(list)
    overall: dict[str, list[int]] = defaultdict(list)
    for stay in stays:
        monthly[stay.room_type, stay.arrival.replace(day=1)].append(stay.rate_minor)
        overall[stay.room_type].append(stay.rate_minor)
    return (
        {key: median_low(found) for key, found in monthly.items()},
        {key: median_low(found) for key, found in overall.items()},
    )


def _peaks(stays: Iterable[Stay]) -> dict[tuple[str, date], int]:
    """The most rooms of a type that were taken in one night of a month."""
    occupied = Counter((stay.room_type, night) for stay in stays for night in stay.dates())
    peaks: dict[tuple[str, date], int] = defaultdict(int)
    for (room_type, night), taken in occupied.items():
        key = room_type, night.replace(day=1)
        peaks[key] = max(peaks[key], taken)
    return peaks


def _less_some(peak: int) -> int:
    """The capacity: a tenth below the peak, rounded down, so that the replay has something to fight for."""
    return max(peak * (10 - CONTENTION_TENTHS) // 10, 1)

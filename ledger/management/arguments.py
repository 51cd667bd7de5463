"""Numbers on the command line, within bounds; what is none of them is refused by its text."""

import math
from argparse import ArgumentTypeError

COUNT_MAX = 1_000_000


def count(text: str) -> int:
    """1 to COUNT_MAX."""
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= COUNT_MAX:
        raise ArgumentTypeError(f"{text!r} is no whole number from 1 to {COUNT_MAX}")
    return int(text)


def count_or_none(text: str) -> int | None:
    """A count; `none` takes the bound away."""
    return None if text == "none" else count(text)


def number(text: str, least: float, most: float) -> float:
    """From `least` to `most`; what is not a number is in no such range."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not least <= found <= most:
        raise ArgumentTypeError(f"{text!r} is no number from {least:g} to {most:g}")
    return found

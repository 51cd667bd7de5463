"""Whether a text holds what looks like the number of a payment card. We take none: whoever sends one is told, and it is
neither stored nor logged.

13 to 19 digits that begin as a scheme's cards do, are as many as it gives them, and whose last one checks (ISO/IEC 7812);
with single spaces or dashes in between. Digits that hang on to a letter are part of an id of the client's own, and are not
looked at. Pure.
"""

import re
from collections.abc import Iterator

SHORTEST, LONGEST = 13, 19
# What a scheme's numbers begin with, and how many digits they have. Where ranges lie inside one another, the wider.
SCHEMES = (
    ("4", (13, 16, 19)),  # Visa
    ("5[1-5]|2[2-7]", (16,)),  # Mastercard
    ("3[47]", (15,)),  # American Express
    ("3[0689]", range(14, 20)),  # Diners Club
    ("35", range(16, 20)),  # JCB
    ("5[0678]|6", range(13, 20)),  # Maestro; Discover and UnionPay within
)
_STARTS = [(re.compile(start), frozenset(lengths)) for start, lengths in SCHEMES]
_START = re.compile(r"(?<![\w.+])(?<!\w-)[2-6]")
_DIGIT = re.compile(r"[ -]?([0-9])")
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)


def is_in(text: str) -> bool:
    if len(text) < SHORTEST:
        return False
    starts = (found.start() for found in _START.finditer(text))
    return any(_is_card(number) for start in starts for number in _numbers(text, start))


def _numbers(text: str, at: int) -> Iterator[str]:
    """Each that begins here and ends where no word goes on."""
    digits = ""
    while len(digits) < LONGEST and (found := _DIGIT.match(text, at)):
        digits += found[1]
        at = found.end()
        if len(digits) >= SHORTEST and not text[at : at + 1].isalnum():
            yield digits


def _is_card(number: str) -> bool:
    known = (start.match(number) and len(number) in lengths for start, lengths in _STARTS)
    return any(known) and _checks([int(digit) for digit in reversed(number)])


def _checks(backward: list[int]) -> bool:
    """Luhn's sum: from the right every second digit counts doubled, less nine where that is two digits."""
    return (sum(backward[::2]) + sum(_DOUBLED[digit] for digit in backward[1::2])) % 10 == 0

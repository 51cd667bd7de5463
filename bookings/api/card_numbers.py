"""Whether a text holds what looks like the number of a payment card. We take none: whoever sends one is told, and it is
neither stored nor logged.

13 to 19 digits that begin as cards do and whose last one checks (ISO/IEC 7812), with single spaces or dashes in between.
Digits that hang on to a letter are part of an id of the client's own, and are not looked at. Pure.
"""

import re
from collections.abc import Iterator

SHORTEST, LONGEST = 13, 19
# As the schemes in use begin; neither a date (20...) nor a count nor a time in milliseconds (1...) does.
_START = re.compile(r"(?<![\w.+])(?<!\w-)(?:2[2-7]|[3-6][0-9])")
_DIGIT = re.compile(r"[ -]?([0-9])")
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)


def is_in(text: str) -> bool:
    if len(text) < SHORTEST:
        return False
    starts = (found.start() for found in _START.finditer(text))
    return any(_checks(digits) for start in starts for digits in _numbers(text, start))


def _numbers(text: str, at: int) -> Iterator[list[int]]:
    """Each that begins here and ends where no word goes on."""
    digits: list[int] = []
    while len(digits) < LONGEST and (found := _DIGIT.match(text, at)):
        digits.append(int(found[1]))
        at = found.end()
        if len(digits) >= SHORTEST and not text[at : at + 1].isalnum():
            yield digits


def _checks(digits: list[int]) -> bool:
    """Luhn's sum: from the right every second digit counts doubled, less nine where that is two digits."""
    backward = digits[::-1]
    return (sum(backward[::2]) + sum(_DOUBLED[digit] for digit in backward[1::2])) % 10 == 0

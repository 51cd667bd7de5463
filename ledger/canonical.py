"""Canonical JSON, fingerprints and field-by-field difference: the pure core of every "is this the same?".

Canonical form: object members sorted by name, no insignificant white space, integers only (a float has no single
spelling, and money is never one), text as it is. Equal fingerprints mean equal meaning, whatever the order of members.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, override

from ledger.outcomes import Difference


class _Absent:
    """Stands for a member that is not there: no JSON value, so that no text can be mistaken for it."""

    @override
    def __repr__(self) -> str:
        return "(absent)"


ABSENT = _Absent()
_NAMES = frozenset({str})
_PLAIN = frozenset({str, int, bool, type(None)})


def encode(value: Any) -> str:
    """The canonical JSON text of `value`. TypeError for a float or a type that JSON does not have."""
    if not _is_plain(value):
        _refuse_floats(value, "")
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def fingerprint(value: Any) -> bytes:
    """SHA-256 over the canonical JSON of `value`: 32 bytes."""
    return hashlib.sha256(encode(value).encode("utf-8")).digest()


def differences(stored: Any, new: Any, pointer: str = "") -> Iterator[Difference]:
    """Every place, as a JSON pointer (RFC 6901), where two JSON values differ; an absent member reads `(absent)`."""
    if isinstance(stored, Mapping) and isinstance(new, Mapping):
        for name in sorted(stored.keys() | new.keys()):
            yield from differences(
                stored.get(name, ABSENT), new.get(name, ABSENT), f"{pointer}/{_escape(name)}"
            )
    elif _is_list(stored) and _is_list(new) and len(stored) == len(new):
        for index, pair in enumerate(zip(stored, new, strict=True)):
            yield from differences(*pair, f"{pointer}/{index}")
    elif type(stored) is not type(new) or stored != new:
        yield Difference(pointer or "/", stored, new)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _is_plain(value: Any) -> bool:
    """Whether it is made of exactly the types that have a canonical form: a quick yes for most, and no is no verdict."""
    members: Iterable[Any]
    match value:
        case dict():
            members = value.values()
            if not _NAMES.issuperset(map(type, value)):
                return False
        case list():
            members = value
        case _:
            return type(value) in _PLAIN
    return _PLAIN.issuperset(map(type, members)) or all(map(_is_plain, members))


def _refuse_floats(value: Any, pointer: str) -> None:
    if isinstance(value, float):
        raise TypeError(
            f"{pointer or '/'}: a float has no canonical form; use an integer or a string"
        )
    if isinstance(value, Mapping):
        for name, member in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{pointer}: member name {name!r} is not a string")
            _refuse_floats(member, f"{pointer}/{_escape(name)}")
    elif _is_list(value):
        for index, item in enumerate(value):
            _refuse_floats(item, f"{pointer}/{index}")

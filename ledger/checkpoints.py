"""The checkpoint's data and its formats. Pure.

What would break without it: a build could not read what the next one wrote, and a rollback would strand jobs. The promise:
a format is read before any build writes it (expand, then write). A build reads every format of `READABLE` and hands it out
as `CURRENT`; which one it writes is a setting, so that the build before can still take over. A claim asks only for jobs
whose last checkpoint is readable; another format is `UnreadableCheckpoint`, never guessed at.

    1  {"state", "direction", "settled": {"step:direction": outcome}}
    2  the same with "pivot_sent", and of what is settled the provider's own reference too:
       {"settled": {"step:direction": {"outcome", "ref"}}}; null: the format that was written did not say
"""

from collections.abc import Callable, Mapping
from typing import Any

from ledger.operations import Key, Operation
from ledger.saga import Direction

CURRENT = 2
READABLE = range(1, CURRENT + 1)

Data = dict[str, Any]


class UnreadableCheckpoint(Exception):
    """A checkpoint in a format that this build does not read."""

    def __init__(self, written: int) -> None:
        self.written = written
        super().__init__(
            f"checkpoint format {written}: this build reads {READABLE[0]} to {READABLE[-1]}"
        )


def make(
    written: int,
    ops: Mapping[Key, Operation],
    *,
    state: str,
    direction: Direction,
    pivot_sent: bool,
) -> Data:
    """How far a job has settled, in the format asked for: where it stands, and each operation that is final."""
    if written not in READABLE:
        raise UnreadableCheckpoint(written)
    final = {f"{step}:{way}": op.final for (step, way), op in ops.items() if op.final is not None}
    made: Data = {"state": str(state), "direction": str(direction)}
    if written == 1:
        return made | {"settled": {name: str(r.outcome) for name, r in final.items()}}
    settled = {
        name: {"outcome": str(r.outcome), "ref": r.evidence.get("ref")} for name, r in final.items()
    }
    return made | {"pivot_sent": pivot_sent, "settled": settled}


def read(written: int, data: Mapping[str, Any]) -> Data:
    """Stored data as `CURRENT` has it, one format after the other."""
    if written not in READABLE:
        raise UnreadableCheckpoint(written)
    read_so_far = dict(data)
    for step in range(written, CURRENT):
        read_so_far = UP[step](read_so_far)
    return read_so_far


def outcomes_of(written: int, data: Mapping[str, Any]) -> dict[str, str]:
    """{"step:direction": outcome} of what a checkpoint says is settled."""
    settled = read(written, data).get("settled") or {}
    return {name: told["outcome"] for name, told in settled.items()}


def _to_2(data: Data) -> Data:
    """Format 1 told no reference, and not whether the pivot was sent."""
    settled = data.get("settled") or {}
    told = {name: {"outcome": outcome, "ref": None} for name, outcome in settled.items()}
    return data | {"pivot_sent": None, "settled": told}


UP: dict[int, Callable[[Data], Data]] = {1: _to_2}
assert set(UP) == set(READABLE[:-1]), "every readable format but the last is cast up"

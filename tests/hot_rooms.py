"""A table of rooms of our own, and a LOCAL step that takes one of each room it names."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ledger import outcomes, saga, sql
from ledger.saga import Call
from tests import psql, sagas

ROOMS = ("red", "green", "blue", "white", "black")
Handler = Callable[[Call], outcomes.Outcome]


@contextmanager
def hotel() -> Iterator[None]:
    """The table within the block."""
    with psql.connected() as owner:
        owner.execute("DROP TABLE IF EXISTS hot_room")
        owner.execute("CREATE TABLE hot_room (key text PRIMARY KEY, taken int NOT NULL DEFAULT 0)")
        owner.execute("GRANT SELECT, UPDATE ON hot_room TO amends_worker")
        owner.cursor().executemany(
            "INSERT INTO hot_room (key) VALUES (%s)", [[key] for key in ROOMS]
        )
        try:
            yield
        finally:
            owner.execute("DROP TABLE hot_room")


def taken() -> dict[str, int]:
    return dict(sql.fetch("SELECT key, taken FROM hot_room WHERE taken > 0"))


def take(call: Call) -> outcomes.Confirmed:
    for key in call.arguments["rooms"]:
        sql.fetch("UPDATE hot_room SET taken = taken + 1 WHERE key = %s", [key])
    return outcomes.Confirmed(ref=call.operation_id)


def _keys(arguments: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
    return [(key,) for key in arguments["rooms"]]


def lock(keys: Sequence[tuple[Any, ...]]) -> None:
    for (key,) in keys:
        sql.fetch("SELECT 1 FROM hot_room WHERE key = %s FOR NO KEY UPDATE", [key])


LOCKED = saga.Rows(name="hot_room", keys=_keys, lock=lock)


@contextmanager
def taking(handler: Handler = take, **options: Any) -> Iterator[saga.Saga]:
    """A saga of one LOCAL step over these rooms."""
    step = saga.Step(
        "take",
        do=handler,
        undo=saga.NotUndoable("a test"),
        effect=saga.LOCAL,
        **{"rows": LOCKED, **options},
    )
    with sagas.registered(saga.Saga("test.rooms", version=1, steps=[step])) as definition:
        yield definition

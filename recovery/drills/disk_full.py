"""The disk of PostgreSQL is full: first statements fail for want of room, then the log has none and the server goes down.

Shows that nothing accepted is lost, that a client is told so where its booking cannot be stored, and that every process
waits for the room to come back instead of ending.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import httpx2
from django.db import Error

from ledger import sql
from recovery.drills import place as names
from recovery.drills.load import Told
from recovery.drills.place import SmallDisk
from recovery.drills.run import Drill, Run

NO_ROOM = "53100"
BOOKINGS, CLIENTS = 12, 4
ASKED = 40  # tables have some room within: it takes more than a few to meet the end of it
HELD_SECONDS = 6.0
DOWN_SECONDS, DOWN_SECONDS_MAX = 2.0, 10.0
PROBLEM = "urn:amends:problem:"
GROW = "CREATE TEMPORARY TABLE pg_temp.drill_grows AS SELECT repeat(md5(n::text), 200) FROM generate_series(1, 2000) n"
SHRINK = "DROP TABLE IF EXISTS pg_temp.drill_grows"
NEXT_LOG_FILE = (
    "SELECT pg_logical_emit_message(true, 'drill', 'the next file of the log, please')",
    "SELECT pg_switch_wal()",
)
BACK = "SELECT 1"


def play(run: Run) -> None:
    children = _children(run)
    with run.place.small_disk() as disk:
        run.note("PostgreSQL moved to a small file system of its own")
        _statements_fail(run, disk)
        _server_dies(run, disk)
    run.expect(
        holds=_children(run) == children,
        otherwise=f"workers' children {children} at first, {_children(run)} now",
    )


def _statements_fail(run: Run, disk: SmallDisk) -> None:
    """Long enough for a client, a worker and ourselves to have met it."""
    stays = run.place.stays(ASKED)  # their rooms are there before the disk is full
    with _clients(run, "full"):
        run.watch.fault("disk full")
        asked = _asked(run, stays)
        try:
            run.place.wait_until(lambda: _look(run, disk, asked), HELD_SECONDS)
        finally:
            disk.free()
    for one in asked:
        run.load.replay(one)
    run.note("no room on the disk for some seconds: statements fail, clients are told so")
    run.wait("the workers back at work", lambda: run.running() > 0 or run.load.is_over())


def _server_dies(run: Run, disk: SmallDisk) -> None:
    """No room for the next file of its log: a PANIC, and a recovery that cannot write either."""
    with _clients(run, "down"):
        run.watch.fault("log full")
        try:
            is_down = run.place.wait_until(lambda: not _can_log(disk), DOWN_SECONDS_MAX)
            run.place.wait_until(lambda: False, DOWN_SECONDS)
        finally:
            disk.free()
        run.seen["panics"] += disk.said("PANIC:")
        run.seen["database_ended"] += disk.revive()
        run.expect(holds=is_down, otherwise="the server never ran out of room for its log")
    run.wait("PostgreSQL back", lambda: run.place.sql(BACK) == [(1,)])
    run.seen["no_space_left"] += disk.said("No space left on device")
    run.note("no room for PostgreSQL's log: it went down, and was started again with room")


@contextmanager
def _clients(run: Run, what: str) -> Iterator[None]:
    """Some more book meanwhile, each until it is answered; their rooms are there before the disk is full."""
    stays = run.place.stays(BOOKINGS)
    run.wait_running()
    with futures.ThreadPoolExecutor(CLIENTS, thread_name_prefix="client") as pool:
        posting = [
            pool.submit(run.load.book, f"{what}-{number}", stay)
            for number, stay in enumerate(stays)
        ]
        yield
    for one in posting:
        one.result()


def _look(run: Run, disk: SmallDisk, asked: list[Told]) -> bool:
    """Fill what was given back; try a statement of ours and, as a client, each of these until it is refused."""
    disk.fill()
    run.seen["disk_full"] += _is_refused()
    run.seen["honest_refusals"] += any(_is_told_so(run, one) for one in asked)
    return False


def _is_refused() -> bool:
    """Whether a statement of ours fails for want of room; it leaves nothing behind."""
    try:
        sql.fetch(GROW)
        sql.fetch(SHRINK)
    except Error as error:
        if sql.trouble(error) is sql.Trouble.RECONNECT:
            sql.replace_connection()
        return sql.state_of(error) == NO_ROOM
    return False


def _is_told_so(run: Run, asked: Told) -> bool:
    """Whether the API says that it cannot store this booking, in a document that says so."""
    try:
        answer = run.place.api.post_once(asked.token, asked.key, asked.body)
    except httpx2.TransportError:
        return False
    body: Mapping[str, Any] = answer.body
    return (
        answer.status == HTTPStatus.SERVICE_UNAVAILABLE
        and body["status"] == answer.status
        and str(body["type"]).startswith(PROBLEM)
    )


def _can_log(disk: SmallDisk) -> bool:
    disk.fill()
    try:
        for statement in NEXT_LOG_FILE:
            sql.fetch(statement)
    except Error as error:
        sql.replace_connection()
        return sql.trouble(error) is not sql.Trouble.RECONNECT
    return True


def _asked(run: Run, stays: Sequence[Mapping[str, Any]]) -> list[Told]:
    """Bookings that are asked for while the disk is full, and once more afterwards."""
    token = run.place.tokens()[0]
    asked = [Told(f"{run.load.prefix}asked-{n}", token, stay) for n, stay in enumerate(stays)]
    run.load.journal.told.update({one.key: one for one in asked})
    return asked


def _children(run: Run) -> list[int]:
    return [
        pid for name in (names.FIRST, names.SECOND, names.COMPENSATION, names.SWEEPS)
        for pid in run.place.children(name)
    ]  # fmt: skip


DRILL = Drill(
    name="disk-full",
    done="PostgreSQL's disk is filled while jobs run: statements fail; then its log has no room and it goes down.",
    faults=play,
    must_see=("disk_full", "honest_refusals", "panics", "write.repeated"),
    recovers="end",
    needs=frozenset({names.DATABASE, names.MOUNT}),
)

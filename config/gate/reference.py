"""What this machine can do at all: single-row commits of one connection, each of them on the disk before the next begins.

A figure of its own means little; throughput is judged as a ratio to it, taken in the same run.
"""

import time

from ledger import sql

COMMITS = 1_500
TABLE = "gate_reference"


def commits_per_second() -> float:
    """Commits one after the other; the table is gone when it returns."""
    sql.fetch(f"DROP TABLE IF EXISTS {TABLE}")
    sql.fetch(f"CREATE TABLE {TABLE} (n int PRIMARY KEY, payload text NOT NULL)")
    try:
        begun = time.perf_counter()
        for n in range(COMMITS):
            sql.fetch(f"INSERT INTO {TABLE} VALUES (%s, repeat('x', 200))", [n])  # noqa: S608  a constant
        return COMMITS / (time.perf_counter() - begun)
    finally:
        sql.fetch(f"DROP TABLE IF EXISTS {TABLE}")

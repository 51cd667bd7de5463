"""`manage.py bench submit` measures a real server with real clients, and takes its table away again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from config import bench_views, embedded, programs

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(180)
COMMAND = [sys.executable, "manage.py", "bench", "submit", "--json", "--rounds", "1"]
TABLE = "SELECT to_regclass(%s) IS NOT NULL, (SELECT count(*) > 0 FROM bookings_booking)"


def test_it_prints_both_rates_and_their_ratio_and_cleans_up() -> None:
    given = {key: value for key, value in os.environ.items() if key not in programs.ADDRESSES}
    with embedded.Servers() as servers:
        env = {**given, **servers.env, "AMENDS_ROLE": "owner"}
        done = subprocess.run(
            [*COMMAND, "--seconds", "0.5", "--clients", "2"],
            cwd=ROOT, env=env, capture_output=True, text=True, timeout=150, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        with psycopg.connect(
            embedded.address_of(servers.directory), dbname=embedded.DATABASE
        ) as session:
            assert session.execute(TABLE, [bench_views.TABLE]).fetchone() == (False, True)
    found = json.loads(done.stdout)
    assert found["submit_per_s"] > 0
    assert found["ratio"] == pytest.approx(found["submit_per_s"] / found["bare_per_s"], abs=0.01)

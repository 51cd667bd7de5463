"""Whether a build may be deployed, and whether one may go back: a yes leaves no job behind that nobody could drive."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django.fixtures import Settings

from ledger import outcomes, saga, shares
from recovery import preflight
from tests import claims, drives, factories, psql, sagas
from tests.sagas import World

ROOT = Path(__file__).resolve().parents[2]


def version(number: int, names: list[str], world: World | None = None) -> saga.Saga:
    world = world or World()
    last = sagas.step(world, names[-1], undo=saga.NotUndoable("last step"), pivot=True)
    steps = [*[sagas.step(world, name) for name in names[:-1]], last]
    return saga.Saga("test.preflight", version=number, steps=steps)


ONE = version(1, ["room", "payment", "ticket"])
TWO = version(2, ["insurance", "room", "ticket"])


def manifest(*definitions: saga.Saga, **differs: Any) -> dict[str, Any]:
    """The manifest of a build that knows these beside what this one always knows."""
    for definition in definitions:
        saga.register(definition)
    try:
        return {**json.loads(out("manifest", "--json")), **differs}
    finally:
        for definition in definitions:
            saga.forget(definition)


def written(tmp_path: Path, stated: dict[str, Any]) -> str:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(stated))
    return str(path)


def out(command: str, *arguments: str) -> str:
    stream = io.StringIO()
    call_command(command, *arguments, stdout=stream)
    return stream.getvalue()


def ask(*arguments: str) -> tuple[int, dict[str, Any]]:
    """(exit status, what it said)."""
    stream = io.StringIO()
    status = 0
    try:
        call_command("preflight", *arguments, "--json", stdout=stream)
    except CommandError as error:
        status = error.returncode
    return status, json.loads(stream.getvalue() or "{}")


def obstacles(told: dict[str, Any], answer: int) -> list[tuple[str, int]]:
    return [(o["what"], o["jobs"]) for o in told["answers"][answer]["obstacles"]]


@pytest.mark.usefixtures("database")
def test_the_manifest_says_what_the_build_knows(settings: Settings) -> None:
    settings.BUILD, settings.CHECKPOINT_FORMAT = "2026-01", 1
    told = manifest(ONE)
    assert (told["build"], told["checkpoints"]) == ("2026-01", {"reads": [1, 2], "writes": 1})
    (ours,) = [s for s in told["sagas"] if s["name"] == "test.preflight"]
    assert [(s["name"], s["pivot"], s["undo"]) for s in ours["steps"]] == [
        ("room", False, True),
        ("payment", False, True),
        ("ticket", True, False),
    ]
    assert {s["effect"] for s in ours["steps"]} == {"world"}
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(name) FROM django_migrations WHERE app = 'ledger'")
        (last,) = cursor.fetchone()
    assert told["migrations"]["ledger"] == {"known": last, "applied": last}
    assert "issue_ticket" in out("manifest")


@pytest.mark.usefixtures("database")
def test_with_nothing_in_flight_both_ways_are_open(tmp_path: Path) -> None:
    status, told = ask("--against", written(tmp_path, manifest()))
    assert (status, told["in_flight"]) == (0, [])
    assert [a["yes"] for a in told["answers"]] == [True, True]


@pytest.mark.usefixtures("database")
def test_a_version_that_this_build_lacks_is_in_the_way_of_its_deployment() -> None:
    jobs = [str(factories.submit(TWO)) for _ in range(12)]
    with sagas.registered(ONE):
        factories.submit(ONE)
        before = [claims.snapshot(job) for job in jobs]  # type: ignore[arg-type]
        status, told = ask()
        text = io.StringIO()
        with pytest.raises(CommandError, match="no: 1 in the way"):
            call_command("preflight", stdout=text)
    assert status == 1
    assert obstacles(told, 0) == [("build dev does not know test.preflight version 2", 12)]
    assert told["answers"][0]["obstacles"][0]["ids"] == sorted(jobs)[: preflight.IDS_MAX]
    assert [(k["version"], k["jobs"]) for k in told["in_flight"]] == [(1, 1), (2, 12)]
    assert "12 jobs in flight" in text.getvalue()
    assert [claims.snapshot(job) for job in jobs] == before  # type: ignore[arg-type]


@pytest.mark.usefixtures("database")
def test_what_has_ended_is_in_nobodys_way() -> None:
    with sagas.registered(TWO):
        job = factories.submit(TWO)
        drives.drive_all()
        assert drives.state(job) == "confirmed"
    assert ask()[0] == 0


@pytest.mark.usefixtures("database")
def test_a_version_that_the_build_before_lacks_is_in_the_way_back(tmp_path: Path) -> None:
    with sagas.registered(ONE), sagas.registered(TWO):
        before = written(tmp_path, manifest(build="before"))
        status, told = ask("--against", before)
        assert (status, obstacles(told, 1)) == (0, [])
        old = written(
            tmp_path,
            {
                **manifest(),
                "build": "old",
                "sagas": [s for s in manifest()["sagas"] if s["version"] == 1],
            },
        )
        status, told = ask("--against", old)
        assert status == 0, "nothing of version 2 is in flight yet"
        assert told["answers"][1]["notes"] == [
            "test.preflight version 2 is not known there: jobs of it that are accepted from now on are obstacles"
        ]
        factories.submit(TWO)
        status, told = ask("--against", old)
    assert status == 1
    assert [a["yes"] for a in told["answers"]] == [True, False]
    assert obstacles(told, 1) == [("build old does not know test.preflight version 2", 1)]


@pytest.mark.usefixtures("database")
def test_formats_are_in_the_way_back(tmp_path: Path, settings: Settings) -> None:
    """What is written is judged before it is written; what is stored stays in the way until its job has ended."""
    old = {"checkpoints": {"reads": [1], "writes": 1}, "build": "old"}
    against = written(tmp_path, manifest(ONE, **old))
    world = World()
    world.says("payment:forward", lambda _: outcomes.Unknown("no answer"))
    definition = version(1, ["room", "payment", "ticket"], world)
    with sagas.registered(definition):
        factories.submit(definition)
        status, told = ask("--against", against)
        writes = ("this build writes checkpoint format 2; build old reads 1", 0)
        assert (status, obstacles(told, 1)) == (1, [writes])
        settings.CHECKPOINT_FORMAT = 1
        assert ask("--against", against)[0] == 0
        settings.CHECKPOINT_FORMAT = 2
        settings.BACKOFF_SECONDS = 60.0
        drives.drive_all()
        settings.CHECKPOINT_FORMAT = 1
        status, told = ask("--against", against)
    stored = (
        "build old does not read checkpoint format 2, which jobs of test.preflight version 1 have"
    )
    assert (status, obstacles(told, 1)) == (1, [(stored, 1)])


@pytest.mark.usefixtures("database")
def test_a_step_that_a_definition_lost_is_in_the_way(tmp_path: Path, settings: Settings) -> None:
    settings.BACKOFF_SECONDS = 60.0
    world = World()
    world.says("payment:forward", lambda _: outcomes.Unknown("no answer"))
    definition = version(1, ["room", "payment", "ticket"], world)
    with sagas.registered(definition):
        begun = factories.submit(definition)
        drives.drive_all()
        factories.submit(definition)
        shares.promote("forward")
        edited = manifest()
    edited["sagas"] = [
        {**s, "steps": [p for p in s["steps"] if p["name"] != "room"]} for s in edited["sagas"]
    ]
    with sagas.registered(definition):
        status, told = ask("--against", written(tmp_path, edited))
    assert status == 1
    what = "test.preflight version 1 of build dev has no step room, which journals name"
    assert obstacles(told, 1) == [(what, 1)]
    assert told["answers"][1]["obstacles"][0]["ids"] == [str(begun)]
    with sagas.registered(version(1, ["payment", "ticket"])):
        assert obstacles(ask()[1], 0) == [(what, 1)]


@pytest.mark.usefixtures("database")
def test_a_migration_that_is_not_applied_is_in_the_way() -> None:
    with psql.connected() as owner:
        (row,) = owner.execute(
            "DELETE FROM django_migrations WHERE app = 'recovery' OR (app, name) IN"
            " (SELECT 'sessions', max(name) FROM django_migrations WHERE app = 'sessions') RETURNING app, name, applied"
        )
    try:
        status, told = ask()
    finally:
        with psql.connected() as owner:
            owner.execute(
                "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, %s)", row
            )
    assert status == 1
    assert obstacles(told, 0) == [
        (f"migration sessions {row[1]} is not applied: run migrate first", 0)
    ]


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON: "),
        ("[]", "is no manifest of version 1"),
        ('{"manifest": 2}', "is no manifest of version 1"),
        ('{"manifest": 1, "build": "b"}', "the manifest is not whole: KeyError 'sagas'"),
        ('{"manifest": 1, "build": "b", "sagas": [1]}', "the manifest is not whole: TypeError"),
        ("\xff", "is not JSON: "),
    ],
)
def test_a_file_that_is_no_manifest_cannot_tell(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CommandError, match="cannot tell: ") as error:
        call_command("preflight", "--against", str(path))
    assert error.value.returncode == 2
    assert why in str(error.value)


@pytest.mark.usefixtures("database")
def test_a_file_that_is_not_there_cannot_tell(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read: No such file or directory") as error:
        call_command("preflight", "--against", str(tmp_path / "nowhere.json"))
    assert error.value.returncode == 2


@pytest.mark.timeout(90)
def test_a_database_that_is_away_cannot_tell() -> None:
    """As a process of its own, whose exit status a pipeline would read; the manifest is told all the same."""
    env = {**os.environ, "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing"}

    def run(command: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "manage.py", command, "--json"]
        return subprocess.run(
            program, cwd=ROOT, env=env, capture_output=True, text=True, timeout=40, check=False
        )

    done = run("preflight")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot tell: the database cannot be asked" in done.stderr
    known = run("manifest")
    assert known.returncode == 0, known.stderr
    assert json.loads(known.stdout)["migrations"]["ledger"]["applied"] is None

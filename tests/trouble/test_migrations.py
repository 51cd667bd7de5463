"""A migration of the hottest table while bookings run: expand, backfill, contract, under the limit that deployments set.

The promise: nobody's request fails by a migration, and no booking is lost. What could break it is a wait: an ALTER TABLE
that waits for one long reader makes everybody else wait behind it. So whoever migrates waits for locks with a limit that is
shorter than everybody else's; one that meets it has changed nothing, and is run again. Real `migrate`, real processes.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import httpx2
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection
from django.test import override_settings

from config import programs
from ledger import models, sql
from recovery.invariants import check
from tests import psql
from tests.acceptance import live as acceptance
from tests.acceptance.live import Agent, Live

pytestmark = pytest.mark.timeout(120)
LOCK_SECONDS = 1.0  # of whoever migrates; LOCK_SECONDS of the others is 5
ANSWERED_SECONDS = 4.0  # a request that waits behind the migration for so long, and is answered
TRIES, SECONDS, PACE_SECONDS = 20, 45.0, 0.02
LOCK_TIMED_OUT = "55P03"
OURS = Path(models.__file__).with_name("migrations")
HEAD = """
from django.contrib.postgres.operations import AddConstraintNotValid, ValidateConstraint
from django.db import migrations, models
from django.db.models import CheckConstraint, Q

class Migration(migrations.Migration):
    dependencies = [("ledger", "{before}")]
"""
# A column that the build at work knows nothing of. Every write to the table states the current fence, a backfill too.
EXPAND = """
    operations = [
        migrations.AddField("job", "colour", models.CharField(max_length=20, null=True)),
        migrations.AlterField("job", "colour", models.CharField(max_length=20, null=True, db_default="new")),
    ]
"""
BACKFILL = """
    atomic = False  # each batch commits by itself

    def fill(apps, editor):
        with editor.connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            while cursor.rowcount:
                cursor.execute(
                    "UPDATE ledger_job SET acting_fence = fence, colour = 'old' WHERE id IN (SELECT id FROM ledger_job"
                    " WHERE colour IS NULL ORDER BY id LIMIT 50 FOR NO KEY UPDATE SKIP LOCKED)")

    operations = [migrations.RunPython(fill)]
"""
CONSTRAIN = """
    operations = [
        AddConstraintNotValid("job", CheckConstraint(condition=Q(colour__isnull=False), name="ledger_job_has_colour")),
    ]
"""
VALIDATE = """
    operations = [ValidateConstraint("job", "ledger_job_has_colour")]  # looks at every row, and holds up nobody
"""
DROP = """
    operations = [
        migrations.RemoveConstraint("job", "ledger_job_has_colour"),
        migrations.RemoveField("job", "colour"),
    ]
"""
LATER = {
    "9001_expand": EXPAND,
    "9002_backfill": BACKFILL,
    "9003_constrain": CONSTRAIN,
    "9004_validate": VALIDATE,
    "9005_drop": DROP,
}
CLEAN = """
ALTER TABLE ledger_job DROP COLUMN IF EXISTS colour;
DELETE FROM django_migrations WHERE app = 'ledger' AND name > '9000'
"""
HAS_COLOUR = """
SELECT EXISTS (SELECT FROM information_schema.columns WHERE table_name = 'ledger_job' AND column_name = 'colour')
"""


class Load:
    """A client that books without a pause, and what it was answered."""

    def __init__(self, agent: Agent) -> None:
        self.accepted: list[UUID] = []
        self.others: Counter[str] = Counter()
        self.longest = 0.0
        self._agent, self._done = agent, threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _exc: BaseException | None,
        _at: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def more(self, count: int) -> None:
        """Wait until so many more were accepted."""
        so_far = len(self.accepted)
        acceptance.until(
            lambda: len(self.accepted) >= so_far + count, SECONDS, lambda: str(self.others)
        )

    def _run(self) -> None:
        number = 0
        while not self._done.wait(PACE_SECONDS):
            number, began = number + 1, time.monotonic()
            try:
                answer = self._agent.post(f"load-{number}")
            except httpx2.HTTPError as error:
                self.others[type(error).__name__] += 1
                continue
            self.longest = max(self.longest, time.monotonic() - began)
            if answer.status_code == 202:
                self.accepted.append(UUID(answer.json()["id"]))
            else:
                self.others[str(answer.status_code)] += 1


@pytest.fixture(scope="module")
def running(live: Live) -> Live:
    live.start(programs.SANDBOX)
    live.start(programs.API, *programs.WORKERS, programs.BEAT)
    return live


@pytest.fixture
def later(running: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The migrations of a build to come are the ledger's own, and four more."""
    package = tmp_path / "later_migrations"
    package.mkdir()
    (package / "__init__.py").touch()
    for file in OURS.glob("0*.py"):
        (package / file.name).symlink_to(file)
    before = max(file.stem for file in OURS.glob("0*.py"))
    for name, operations in LATER.items():
        (package / f"{name}.py").write_text(HEAD.format(before=before) + operations)
        before = name
    monkeypatch.syspath_prepend(str(tmp_path))
    with override_settings(MIGRATION_MODULES={"ledger": package.name}), limited_locks():
        try:
            yield
        finally:
            sql.fetch(CLEAN)


@contextmanager
def limited_locks() -> Iterator[None]:
    """As docs/deployment.md says: the role that migrates waits for a lock for so long, in this database."""
    database = connection.settings_dict["NAME"]
    role = f"ALTER ROLE CURRENT_USER IN DATABASE {database}"
    sql.fetch(f"{role} SET lock_timeout = {int(LOCK_SECONDS * 1000)}")
    connection.close()
    try:
        yield
    finally:
        sql.fetch(f"{role} RESET lock_timeout")
        connection.close()


def migrate(name: str) -> None:
    call_command("migrate", "ledger", name, verbosity=0)


def sqlstate(error: OperationalError) -> Any:
    return getattr(error.__cause__, "sqlstate", "")


def insist(name: str) -> int:
    """Run it until it is through; returns how often."""
    for n in range(1, TRIES):
        try:
            migrate(name)
        except OperationalError as error:
            if sqlstate(error) != LOCK_TIMED_OUT:
                raise
        else:
            return n
    raise AssertionError(f"{name} met its limit {TRIES} times")


def has_colour() -> bool:
    return bool(sql.fetch(HAS_COLOUR)[0][0])


def meet_a_long_reader(load: Load) -> None:
    """Somebody's report has read the table and is not done: the migration gives up in time, and everybody else goes on."""
    with psql.connected(autocommit=False) as reader:
        reader.execute("SELECT count(*) FROM ledger_job")
        began = time.monotonic()
        with pytest.raises(OperationalError) as met:
            migrate("9001_expand")
        assert sqlstate(met.value) == LOCK_TIMED_OUT
        assert time.monotonic() - began < LOCK_SECONDS + ANSWERED_SECONDS
        assert not has_colour(), "what met its limit has changed nothing"
        load.more(10)  # with the reader still there


def test_expand_backfill_and_contract_while_bookings_run(running: Live, later: None) -> None:
    running.rule("refuse", match="ticket", probability=0.2, code="no_ticket")
    agent = running.agent(capacity=5_000)
    with Load(agent) as load:
        load.more(30)
        meet_a_long_reader(load)
        tries = Counter[str]()
        for name in LATER:
            tries[name] = insist(name)
            load.more(10)
        assert not has_colour()
    print(f"{len(load.accepted)} bookings, tries {dict(tries)}, longest {load.longest:.2f} s")  # noqa: T201  measured
    assert load.others == {}
    assert load.longest < ANSWERED_SECONDS
    assert_nothing_is_lost(running, agent, load.accepted)


def assert_nothing_is_lost(live: Live, agent: Agent, bookings: list[UUID]) -> None:
    jobs = models.Job.objects.filter(tenant=agent.tenant)
    acceptance.until(lambda: not jobs.filter(finished_at=None).exists(), SECONDS)
    ended = Counter(jobs.values_list("state", flat=True))
    assert set(ended) == {"confirmed", "compensated"}
    assert ended.total() == len(bookings)
    assert live.net(bookings) == 20_000 * ended["confirmed"]
    assert agent.small.taken()[:2] == [ended["confirmed"]] * 2
    live.assert_books_agree(bookings)
    assert [found for found in check.run() if not found.is_ok()] == []
    assert live.stack.ended() == {}

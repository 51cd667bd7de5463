"""A command of staff's refuses the roles that do not see all that it tells of: nothing is called well that was not seen."""

import io

import pytest
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from tests import factories, histories, sagas
from tests.conftest import Roles

pytestmark = pytest.mark.usefixtures("database")
OWNERS = [
    ("invariants",),
    ("apikey", "list"),
    ("load_hotel",),
    ("staff", "ann", "--group", "desk"),
    ("resolve", "01a22fc3-537b-7ffd-8a79-ce308e2fc740", "--as", "ask", "--by", "ann", "--reason", "asked for"),
]  # fmt: skip
WORKERS = [("report",), ("restart", "--all-stalled"), ("tenant",), ("provider",)]


def told(*command: str) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("role", ["api", "worker", "retention"])
@pytest.mark.parametrize("command", [*OWNERS, *WORKERS], ids=lambda command: command[0])
def test_a_role_that_does_not_see_all_is_refused(
    settings: Settings, as_role: Roles, command: tuple[str, ...], role: str
) -> None:
    settings.ROLE = role
    with as_role(role):
        if role == "worker" and command in WORKERS:
            told(*command)
            return
        with pytest.raises(CommandError, match=f"AMENDS_ROLE is {role}"):
            told(*command)


def test_the_workers_see_the_jobs_of_all(settings: Settings, as_role: Roles) -> None:
    with sagas.registered(histories.definition()) as definition:
        factories.submit(definition)
        settings.ROLE = "worker"
        with as_role("worker"):
            assert "1 jobs" in told("report")

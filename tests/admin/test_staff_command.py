"""Who may act on a job is decided on the command line: a group gives its rights, and a new person's password works."""

from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from tests import staff


@pytest.fixture(autouse=True)
def groups(database: None) -> None:
    staff.member("sam")  # a test that emptied the database has emptied the groups too


def run(name: str, group: str) -> str:
    out = StringIO()
    call_command("staff", name, "--group", group, stdout=out)
    return out.getvalue()


def test_a_new_person_can_log_in_with_what_was_printed_and_has_the_rights_of_the_group() -> None:
    printed = run("ann", "operator")
    person = User.objects.get(username="ann")
    assert person.check_password(printed.split("password, shown once: ")[1].strip())
    assert person.is_staff
    assert person.has_perm("ledger.retry_compensation")
    assert not person.has_perm("ledger.force_close")


def test_a_known_person_moves_to_another_group_and_keeps_the_password() -> None:
    run("ann", "supervisor")
    before = User.objects.get(username="ann").password
    assert "password" not in run("ann", "viewer")
    person = User.objects.get(username="ann")
    assert person.password == before
    assert not person.has_perm("ledger.force_close")


def test_an_unknown_group_is_refused_and_makes_nobody() -> None:
    with pytest.raises(CommandError, match="no group chief; there are admin, operator, supervisor"):
        run("ann", "chief")
    assert not User.objects.filter(username="ann").exists()

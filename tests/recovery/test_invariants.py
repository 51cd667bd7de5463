"""`manage.py invariants`: what it prints, when it fails, and the comparison with the providers' books."""

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import InternalError
from pytest_django.fixtures import Settings

from ledger import outcomes
from recovery.invariants import books, check, named
from tests import drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("database")
PRICE = {"amount_minor": 12_345, "currency": "EUR"}


@pytest.fixture(autouse=True)
def no_backoff(settings: Settings) -> None:
    settings.BACKOFF_SECONDS = 0.0


def command(*args: str) -> tuple[dict[str, Any], str]:
    """What it printed, and its complaint."""
    out, complaint = io.StringIO(), ""
    try:
        call_command("invariants", "--json", *args, stdout=out)
    except CommandError as error:
        complaint = str(error)
    return dict(json.loads(out.getvalue())), complaint


def test_the_command_says_ok() -> None:
    with sagas.trip(sagas.World()) as trip:
        factories.submit(trip, PRICE)
        drives.drive_all()
        found, complaint = command()
    assert (found["ok"], complaint) == (True, "")
    assert {i["violations"] for i in found["invariants"]} == {0}
    assert [i["id"] for i in found["invariants"]] == [i.id for i in check.ALL]


def test_the_command_names_what_breaks_and_fails_with_at_most_twenty_ids() -> None:
    with psql.connected() as root:
        root.execute("SET session_replication_role = replica")
        root.execute(
            "INSERT INTO ledger_checkpoint (job_id, seq, fence, format, data, at)"
            " SELECT gen_random_uuid(), 1, 1, 1, '{}', ledger_now() FROM generate_series(1, 25)"
        )
    found, complaint = command()
    (broken,) = [i for i in found["invariants"] if i["violations"]]
    assert (broken["id"], broken["violations"], len(broken["ids"])) == ("D1", 25, 20)
    assert found["ok"] is False
    assert complaint == "broken or undecided: D1"


def test_what_takes_too_long_is_undecided_and_not_ok() -> None:
    slow = named.Invariant("X1", "It is slow.", "SELECT pg_sleep(5)::text")
    (finding,) = check.run([slow], seconds=0.05)
    assert finding.is_undecided
    assert not finding.is_ok()
    assert finding.as_json()["undecided"] is True


@pytest.mark.parametrize(
    "given",
    [
        ["--seconds", "0"],
        ["--seconds", "-1"],
        ["--seconds", "nan"],
        ["--books", "-5"],
        ["--books", "0"],
    ],
)
def test_a_bound_that_is_none_is_refused(given: list[str]) -> None:
    with pytest.raises(CommandError, match=r"no (whole )?number"):
        call_command("invariants", *given)


def test_nothing_can_be_written_by_a_query() -> None:
    writing = named.Invariant("X2", "It writes.", "SELECT nextval('ledger_attempt_id_seq')::text")
    with pytest.raises(InternalError, match="read-only transaction"):
        list(check.run([writing]))


# --- The providers' books --------------------------------------------------------------------------------------------


def answers(world: sagas.World, **said: Any) -> None:
    """The provider's books agree with everything, but for what is said."""
    for step in ("room", "payment", "ticket"):
        for direction in ("forward", "backward"):
            what = f"{step}:{direction}:probe"
            world.script[what].clear()
            if answer := said.get(f"{step}_{direction}"):
                world.says(what, *[answer] * 10)


def books_of(settled: str, **said: Any) -> list[str]:
    """What differs of one trip that ended so."""
    world = sagas.World()
    with sagas.trip(world, probe=True) as trip:
        if settled == "compensated":
            world.says("ticket:forward", sagas.raising(outcomes.Refused("sold_out")))
        job = factories.submit(trip, PRICE)
        drives.drive_all()
        answers(world, **said)
        finding = books.compare()
    assert finding.violations == len(finding.ids)
    return ["silent"] * finding.is_undecided + [id_.removeprefix(f"{job}:") for id_ in finding.ids]


def say(answer: Any) -> sagas.Answer:
    return lambda _call: answer


def refused(_call: object) -> outcomes.Sighted:
    raise outcomes.Refused("sold_out")


def test_books_that_agree() -> None:
    assert books_of("confirmed") == []
    assert books_of("compensated", ticket_forward=refused) == []
    assert books_of("compensated", ticket_forward=say(outcomes.NotLanded())) == []


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"payment_forward": say(outcomes.NotLanded())}, ["payment:forward"]),
        ({"payment_forward": refused}, ["payment:forward"]),
        ({"payment_forward": say(outcomes.Confirmed("another"))}, ["payment:forward"]),
        (
            {"payment_forward": sagas.raising(outcomes.Unknown("other_amount_minor"))},
            ["payment:forward"],
        ),
        ({"payment_forward": sagas.raising(TimeoutError())}, ["silent"]),
    ],
    ids=["not landed", "refused", "another effect", "other money", "no answer"],
)
def test_books_that_differ_from_a_confirmed_trip(said: dict[str, Any], wrong: list[str]) -> None:
    assert books_of("confirmed", **said) == wrong


def test_what_is_refused_here_and_landed_there_is_found() -> None:
    assert books_of("compensated") == ["ticket:forward"]


def test_books_are_asked_about_no_more_than_was_asked_for() -> None:
    world = sagas.World()
    with sagas.trip(world, probe=True) as trip:
        for _ in range(3):
            factories.submit(trip, PRICE)
        drives.drive_all()
        world.called.clear()
        found, complaint = command("--books", "2")
        assert (found["ok"], complaint, len(world.called)) == (True, "", 2)
        found, complaint = command("--books", "--since", "2999-01-01")
        assert (found["ok"], complaint, len(world.called)) == (True, "", 2)

"""The seed's story through the real API: A finds no ticket and is made undone, B is confirmed, B again does nothing."""

from collections.abc import Iterator

import pytest

from config import programs
from ledger import models
from tests.acceptance import live as acceptance
from tests.acceptance.live import Live

pytestmark = pytest.mark.timeout(120)
ROOMS, PRICE = 3, 20_000


@pytest.fixture(scope="module")
def running(live: Live) -> Iterator[Live]:
    live.start(programs.SANDBOX)
    live.start(*programs.START_ORDER[1:])
    yield live
    live.be_honest()


def test_the_seed_scenario(running: Live) -> None:
    agent = running.agent(capacity=ROOMS)
    running.rule("refuse", match="ticket", times=1, code="no_ticket")

    a = agent.book("A")
    running.ended([a], "compensated")
    assert agent.get(a)["state"] == "compensated"
    assert agent.get(a)["outcome_known"] is True
    assert running.kinds(a) == ["capture", "refund"]
    assert running.net([a]) == 0
    assert agent.small.taken()[:2] == [0, 0]  # the room is back
    assert acceptance.outcomes(a) == [
        ("reserve_room", "forward", "confirmed"),
        ("capture_payment", "forward", "confirmed"),
        ("secure_room", "forward", "confirmed"),
        ("issue_ticket", "forward", "refused"),
        ("secure_room", "backward", "confirmed"),
        ("capture_payment", "backward", "confirmed"),
        ("reserve_room", "backward", "confirmed"),
    ]

    b = agent.book("B")
    running.ended([b], "confirmed")
    seen = (agent.get(b), running.effects(b), running.requests(b), acceptance.outcomes(b))

    again = agent.post("B")
    assert again.status_code == 202
    assert again.json()["id"] == str(b)
    assert again.headers["Idempotent-Replayed"] == "true"
    running.ended([b], "confirmed")
    assert (
        agent.get(b),
        running.effects(b),
        running.requests(b),
        acceptance.outcomes(b),
    ) == seen
    assert models.Job.objects.filter(tenant=agent.tenant).count() == 2

    assert running.kinds(b) == ["capture", "ticket"]
    assert ROOMS - agent.small.taken()[0] == 2  # "rooms: 2"
    assert running.net([a, b]) == PRICE  # "balance": one stay of two nights
    running.assert_books_agree([a, b])


def test_the_same_key_for_another_stay_is_refused_and_changes_nothing(running: Live) -> None:
    agent = running.agent(capacity=ROOMS)
    first = agent.book("A")
    running.ended([first], "confirmed")
    before = (running.effects(first), agent.small.taken())

    other = agent.post("A", nights=3)
    assert other.status_code == 422
    assert (running.effects(first), agent.small.taken()) == before
    assert models.Job.objects.filter(tenant=agent.tenant).count() == 1
    running.assert_books_agree([first])

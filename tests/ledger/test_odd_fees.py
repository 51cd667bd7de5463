"""A fee that no counter takes is evidence all the same, and ends neither its job's path nor the run of the others."""

from typing import cast

import pytest

from ledger import engine, models, outcomes
from ledger.outcomes import Money
from tests import drives, factories, sagas

pytestmark = pytest.mark.usefixtures("worker_role")


@pytest.mark.parametrize("minor", [290, 0, -290, 2**70, -(2**70)])
def test_a_fee_of_any_size_is_kept_and_all_jobs_go_on(minor: int) -> None:
    world = sagas.World()
    world.says(
        "payment:forward", lambda _call: outcomes.Confirmed(ref="cap", cost=Money(minor, "EUR"))
    )
    with sagas.trip(world) as trip:
        jobs = [factories.submit(trip) for _ in range(3)]
        engine.drive("forward")
    assert {drives.state(job) for job in jobs} == {"confirmed"}
    fees = [
        r.evidence["cost"]["amount_minor"]
        for r in models.Receipt.objects.filter(evidence__has_key="cost")
    ]
    assert [int(fee) for fee in fees] == [minor]


def test_a_fee_of_another_type_is_no_reason_to_lose_the_payment() -> None:
    world = sagas.World()
    world.says("payment:forward", lambda _call: outcomes.Confirmed(cost=cast("Money", "2.90 EUR")))
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        engine.drive("forward")
    assert drives.state(job) == "confirmed"
    receipt = models.Receipt.objects.get(evidence__has_key="unreadable_cost")
    assert (receipt.step, receipt.evidence["unreadable_cost"]) == ("payment", "2.90 EUR")

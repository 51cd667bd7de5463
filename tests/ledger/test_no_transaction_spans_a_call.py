"""While a provider is called, no transaction of the loop is open, and the attempt is committed already."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from ledger import actions, engine, models, operations, outcomes
from ledger.engine import Run
from ledger.holding import Held
from ledger.saga import Call
from tests import claims, drives, factories, psql, sagas

pytestmark = pytest.mark.usefixtures("worker_role")

IDLE = "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = %s"
OPEN = "SELECT xact_start IS NOT NULL, state FROM pg_stat_activity WHERE pid = %s"
ATTEMPTS = "SELECT count(*) FROM ledger_attempt WHERE job_id = %s AND step = %s AND direction = %s AND n = %s"


class Witness:
    """Looks at the loop's session, and at the journal, from another connection while a call is out."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.seen: list[tuple[str, bool, str, int]] = []

    def __call__(self, call: Call) -> outcomes.Confirmed:
        _, step, direction = call.operation_id.split(":")
        with psql.connected() as session:
            psql.await_true(session, IDLE, [self.pid])
            state = session.execute(OPEN, [self.pid]).fetchone()
            stored = session.execute(ATTEMPTS, [call.job_id, step, direction, call.n]).fetchone()
        assert state is not None
        assert stored is not None
        self.seen.append((f"{step}:{direction}", *state, stored[0]))
        return sagas.confirm(call)


def test_every_call_of_every_step_in_both_directions_is_made_outside_a_transaction() -> None:
    world, witness = sagas.World(), Witness(psql.pid())
    expected = ["room:forward", "payment:forward", "payment:backward", "room:backward"]
    for operation in expected:
        world.says(operation, witness)
    world.says("ticket:forward", sagas.raising(outcomes.Refused("no_seat")))
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        drives.drive_all()
    assert drives.state(job) == "compensated"
    assert witness.seen == [(operation, False, "idle", 1) for operation in expected]


def test_a_probe_too() -> None:
    world, witness = sagas.World(), Witness(psql.pid())
    world.says("payment:forward", sagas.raising(TimeoutError()))
    world.says("payment:forward:probe", witness)
    with sagas.trip(world, probe=True) as trip:
        job = factories.submit(trip)
        drives.drive_all()
    assert drives.state(job) == "confirmed"
    assert witness.seen == [("payment:forward", False, "idle", 1)]


def test_an_engine_inside_a_transaction_calls_nobody() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
            engine.drive("forward")
    assert (world.called, drives.state(job)) == ([], "waiting")


def held_with_a_call_planned() -> tuple[Run, Held]:
    with sagas.trip(sagas.World()) as trip:
        claimed = claims.running(trip)
    held = Held(claimed, trip, [], 1e9)
    held.decide(leaving=False)
    assert isinstance(held.next, actions.Send)
    return Run("forward"), held


def test_a_call_is_not_handed_over_inside_a_transaction() -> None:
    run, held = held_with_a_call_planned()
    with transaction.atomic(), pytest.raises(AssertionError, match="no transaction spans a call"):
        run._hand_over(held)
    assert connection.in_atomic_block is False


def test_a_call_is_not_handed_over_before_its_attempt_is_committed() -> None:
    run, held = held_with_a_call_planned()
    held.entries.append(unknown_receipt(held))
    with pytest.raises(AssertionError, match="a call needs its committed attempt"):
        run._hand_over(held)
    assert models.Attempt.objects.count() == 0


def unknown_receipt(held: Held) -> operations.Receipt:
    outcome = outcomes.ReceiptOutcome.UNKNOWN
    return operations.Receipt("room", claims.FORWARD, 1, outcome, {}, held.now() - timedelta(1))

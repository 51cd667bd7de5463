"""Definition mistakes and periods out of order are found by `manage.py check`, each by its own error; good ones by none."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ledger import checks, saga
from ledger.saga import NotUndoable, Rows, Saga, Step
from tests import histories, sagas

ROWS = Rows("room", keys=lambda _arguments: [], lock=lambda _keys: None)


def numbers(definition: Saga) -> list[str]:
    return [(message.id or "").removeprefix("ledger.") for message in checks.problems(definition)]


def with_step(**options: Any) -> Saga:
    return histories.definition("payment", **options)


def with_steps(*steps: Step) -> Saga:
    return Saga("test.mistake", version=1, steps=steps)


def step(name: str = "room", **options: Any) -> Step:
    return sagas.step(sagas.World(), name, **options)


@pytest.mark.parametrize(
    "definition",
    [
        histories.definition(),
        with_step(effect=saga.LOCAL, undo_effect=saga.LOCAL, rows=ROWS),
        with_step(effect=histories.effect(key_lifetime=None, probe=print)),
        with_step(effect=histories.effect(key_lifetime=None), parks_when_unknown=True),
        with_steps(step(), step("ticket", pivot=True, undo=NotUndoable("last step"))),
        with_steps(step()),
    ],
)
def test_a_good_definition_has_no_error(definition: Saga) -> None:
    assert numbers(definition) == []


@pytest.mark.parametrize(
    ("definition", "number"),
    [
        (with_steps(step(), step()), "E002"),
        (with_steps(), "E003"),
        (with_steps(step(pivot=True), step("ticket", pivot=True)), "E004"),
        (with_step(do="bookings.nowhere"), "E005"),
        (with_step(undo="bookings.nowhere"), "E005"),
        (with_step(undo=None), "E006"),
        (with_step(undo=NotUndoable("")), "E006"),
        (with_step(undo=NotUndoable("a reason")), "E007"),
        (with_step(effect=histories.effect(key_lifetime=None)), "E008"),
        (with_step(undo_effect=histories.effect(key_lifetime=None)), "E008"),
        (with_step(effect=histories.effect(call_seconds=3600.0)), "E009"),
        (with_step(effect=histories.effect(resend_to_learn=True, probe=print)), "E013"),
        (with_step(effect=histories.effect(late_probe_suffices=True)), "E014"),
        (with_step(effect=histories.effect(key_lifetime=timedelta(seconds=30))), "E015"),
        (with_step(rows=ROWS), "E010"),
        (with_steps(step("room:forward")), "E011"),
        (with_steps(step("")), "E011"),
        (with_step(attempts=0), "E012"),
        (with_step(undo_attempts=0), "E012"),
    ],
)
def test_each_mistake_has_its_error(definition: Saga, number: str) -> None:
    assert number in numbers(definition)
    assert set(numbers(definition)) <= {number, "E007"}


def test_an_error_names_saga_step_and_what_is_wrong() -> None:
    (message,) = checks.problems(with_step(undo=None))
    assert (
        message.msg
        == "saga test.trip version 1, step payment: neither an undo nor a reason why there is none"
    )


def test_two_of_one_name_and_version_are_an_error_and_another_version_is_none() -> None:
    definition = histories.definition()
    with sagas.registered(definition), sagas.registered(replace(definition, version=2)):
        assert checks.definitions() == []
        with sagas.registered(definition):
            assert [m.id for m in checks.definitions()] == ["ledger.E001"]


def test_what_this_project_registers_has_no_error() -> None:
    assert saga.registered()
    assert checks.definitions() == []
    assert checks.periods() == []
    assert checks.interpreter() == []
    assert checks.transactions() == []


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("LEASE_SECONDS", 15.0, "CALL_SECONDS_MAX + 1 s < LEASE_SECONDS"),
        ("PROVIDER_CALL_SECONDS", 16.0, "PROVIDER_CALL_SECONDS <= CALL_SECONDS_MAX"),
        ("HEARTBEAT_SECONDS", 11.0, "HEARTBEAT_SECONDS x 3 <= LEASE_SECONDS"),
        ("RUN_SECONDS", 110.0, "RUN_SECONDS + CALL_SECONDS_MAX + 5 s < TASK_TIME_LIMIT_SECONDS"),
        (
            "VISIBILITY_TIMEOUT_SECONDS",
            120.0,
            "TASK_TIME_LIMIT_SECONDS < VISIBILITY_TIMEOUT_SECONDS",
        ),
        ("SWEEP_SECONDS", 31.0, "SWEEP_SECONDS <= LEASE_SECONDS"),
        ("SWEEP_SECONDS_RARE", 1.0, "SWEEP_SECONDS <= SWEEP_SECONDS_RARE"),
        ("RETENTION_DAYS", 6, "RETENTION_DAYS is 0, or 7 at least: evidence is judged for so long"),
        ("PUBLISH_TIMEOUT_SECONDS", 1.5, "PUBLISH_TIMEOUT_SECONDS <= 1"),
        ("SLOTS", 0, "SLOTS >= 1"),
    ],
)
def test_a_period_out_of_order_is_an_error_that_names_the_rule(
    settings: Any, name: str, value: float, rule: str
) -> None:
    setattr(settings, name, value)
    assert f"the periods must be in order: {rule}" in [m.msg for m in checks.periods()]


def test_requests_in_one_transaction_are_refused(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ATOMIC_REQUESTS", value=True)
    assert [m.id for m in checks.transactions()] == ["ledger.E022"]

"""Acts that are refused say why in one sentence, and leave the job, its journal and the staff log as they were."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import transaction

from ledger import acts, crashpoints, models, outcomes, resolutions, tenancy
from tests import claims, drives, factories, sagas, staff
from tests.conftest import Roles

pytestmark = pytest.mark.usefixtures("database")
PRICE = {"amount_minor": 12_000, "currency": "EUR"}
REFUND = "payment:backward"


@contextmanager
def unknown_payment() -> Iterator[UUID]:
    """Parked forward: its payment is unknown, its key has lapsed, and there is no probe."""
    world = sagas.World()
    world.says("payment:forward", sagas.raising(TimeoutError()))
    effect = world.effect("any", key_lifetime=timedelta(microseconds=1))
    with sagas.trip(world, effect=effect) as trip:
        job = factories.submit(trip, PRICE)
        drives.drive_all()
        yield job


@contextmanager
def refused_refund() -> Iterator[UUID]:
    """Parked backward: the refund was refused for good."""
    world = sagas.World()
    world.says("ticket:forward", sagas.raising(outcomes.Refused("sold_out")))
    world.says("payment:backward", sagas.raising(outcomes.Refused("disputed")))
    with sagas.trip(world) as trip:
        job = factories.submit(trip, PRICE)
        drives.drive_all()
        yield job


def everything(job: UUID) -> tuple[object, ...]:
    return (*claims.snapshot(job), LogEntry.objects.count())


def refused(job: UUID, act: str, operation: str = "", **more: Any) -> acts.ActRefused:
    """The refusal of an act by somebody who may do it all; nothing happened."""
    by = more.pop("by", None) or staff.member("sam")
    seen = more.pop("seen", None)
    before = everything(job)
    with pytest.raises(acts.ActRefused) as caught:
        resolutions.act(job, staff.asked(act, by, operation, **more), by=by, seen=seen)
    assert everything(job) == before
    return caught.value


@pytest.mark.parametrize(
    ("act", "operation", "more", "says"),
    [
        ("retry", "", {}, "payment:forward is unknown and its key may have expired: resolve it as"),
        ("ask", "", {}, "payment:forward cannot be asked about: no probe is known for it"),
        ("done", "", {"evidence": {}}, "done needs the provider's reference, or evidence in words"),
        ("done", "", {"evidence": {"ref": " ", "data": {"a": 1}}}, "done needs the provider's"),
        ("not-done", "", {"evidence": {"ref": "cap_1"}}, "not-done needs evidence in words"),
        ("done", "room:forward", {}, "room:forward is confirmed: there is nothing to settle"),
        ("not-done", "room:forward", {}, "room:forward is confirmed: it is neither unknown nor"),
        ("ask", "room:forward", {}, "room:forward is confirmed: there is nothing to ask"),
        ("retry", "room:forward", {}, "room:forward is confirmed for good"),
        ("done", "ticket:forward", {}, "the journal has no operation ticket:forward; it has room:"),
        ("done", "payment:backward", {}, "the journal has no operation payment:backward"),
        ("release", "", {}, "nobody has taken it"),
        ("note", "", {"reason": "  too short "}, "a reason of at least 10 characters is needed"),
        ("delete", "", {}, "there is no act 'delete'; the acts are ask, retry, done, not-done"),
    ],
)
def test_of_an_unknown_payment(act: str, operation: str, more: dict[str, Any], says: str) -> None:
    with unknown_payment() as job:
        assert str(refused(job, act, operation, **more)).startswith(says)


@pytest.mark.parametrize(
    ("act", "operation", "says"),
    [
        ("retry", "", f"{REFUND} is refused for good: settle it by hand and resolve it as done"),
        ("ask", "", f"{REFUND} is refused: there is nothing to ask"),
        ("not-done", "", f"{REFUND} is refused: it is neither unknown nor contradicted"),
        ("done", "payment:forward", "payment:forward is confirmed: there is nothing to settle"),
        ("compensate", "", "the job is parked and goes backward already"),
    ],
)
def test_of_a_refund_that_was_refused(act: str, operation: str, says: str) -> None:
    with refused_refund() as job:
        assert str(refused(job, act, operation)).startswith(says)


def test_taken_twice() -> None:
    with refused_refund() as job:
        staff.does(job, "take", by=staff.member("ann"))
        assert str(refused(job, "take")) == "already taken by ann"


@pytest.mark.parametrize("act", sorted(acts.VERBS))
def test_of_a_page_that_is_out_of_date(act: str) -> None:
    with refused_refund() as job:
        seen = models.Job.objects.get(id=job).fence
        staff.does(job, "take" if act != "take" else "note")
        stale = refused(job, act, seen=seen)
        assert isinstance(stale, acts.MovedOn)
        if act != "compensate":
            assert "the page is out of date: the job is parked and goes backward" in str(stale)


@pytest.mark.parametrize("act", sorted(set(acts.VERBS) - {"compensate"}))
def test_of_a_job_that_is_not_parked(act: str) -> None:
    with sagas.trip(sagas.World()) as trip:
        job = factories.submit(trip)
        says = "the job is waiting and goes forward; it is not parked: acts wait until it parks"
        assert str(refused(job, act)) == says
        drives.drive_all()
        assert str(refused(job, act)) == "the job has ended, confirmed"


def test_compensate_of_what_has_ended_or_is_past_its_pivot() -> None:
    world = sagas.World()
    world.says("ticket:forward", sagas.raising(TimeoutError()))
    with sagas.trip(world, attempts=1) as trip:
        job = factories.submit(trip)
        drives.drive_all()
        says = "its pivot may have been sent: nothing goes back past it"
        assert str(refused(job, "compensate")) == says
        other = factories.submit(trip)
        drives.drive_all()
        assert str(refused(other, "compensate")) == "the job has ended, confirmed"


def test_compensate_from_a_page_on_which_somebody_has_acted_since() -> None:
    with unknown_payment() as job:
        seen = models.Job.objects.get(id=job).fence
        staff.does(job, "done", by=staff.member("ann"))
        says = "the page is out of date: done by ann; the job is waiting; look again"
        assert str(refused(job, "compensate", seen=seen)) == says
        assert staff.does(job, "compensate").state == "waiting"


def test_the_second_click_of_the_same_page() -> None:
    with refused_refund() as job:
        seen = models.Job.objects.get(id=job).fence
        sam = staff.member("sam")
        asked = staff.asked("done", sam)
        resolutions.act(job, asked, by=sam, seen=seen)
        says = "already requested: done by sam; the job is waiting"
        assert str(refused(job, "done", seen=seen)) == says


def test_an_unknown_job() -> None:
    sam = staff.member("sam")
    with pytest.raises(acts.ActRefused, match="there is no job"):
        resolutions.act(uuid4(), staff.asked("note", sam), by=sam)


@pytest.mark.parametrize("group", ["viewer", "operator", "supervisor", "admin"])
def test_who_may_do_what(group: str) -> None:
    person = staff.member(f"a-{group}", group)
    allowed = {name for name in acts.VERBS if resolutions.may(person, name)}
    operators = {"ask", "retry", "compensate", "take", "release", "note"}
    assert (
        allowed
        == {
            "viewer": set(),
            "operator": operators,
            "supervisor": set(acts.VERBS),
            "admin": set(acts.VERBS),
        }[group]
    )
    with refused_refund() as job:
        for name in set(acts.VERBS) - allowed:
            assert isinstance(refused(job, name, by=person), acts.NotPermitted)


@pytest.mark.parametrize("change", [{"is_active": False}, {"is_staff": False}])
def test_somebody_who_has_left(change: dict[str, bool]) -> None:
    User.objects.filter(pk=staff.member("gone").pk).update(**change)
    with refused_refund() as job:
        by = User.objects.get(username="gone")
        assert str(refused(job, "note", by=by)) == "gone may not note: take_job is needed"


def test_dying_before_the_write_leaves_nothing() -> None:
    with refused_refund() as job:
        before, sam = everything(job), staff.member("sam")

        def die(_point: str) -> None:
            raise KeyboardInterrupt

        with crashpoints.armed("resolution.before", die), pytest.raises(KeyboardInterrupt):
            resolutions.act(job, staff.asked("done", sam), by=sam)
        assert everything(job) == before


def test_the_act_and_the_staff_log_are_one_transaction() -> None:
    with refused_refund() as job:
        before, sam = everything(job), staff.member("sam")
        with transaction.atomic():
            resolutions.act(job, staff.asked("done", sam), by=sam)
            assert len(staff.logged(job)) == 1
            transaction.set_rollback(True)
        assert everything(job) == before
        staff.does(job, "done")
        assert staff.logged(job) == [
            ("sam", f"done {REFUND}: parked -> waiting. {staff.REASON}"),
        ]
        entry = LogEntry.objects.get(object_id=str(job))
        assert entry.action_time == models.Resolution.objects.get(job_id=job).at


def test_the_api_role_has_the_privileges_and_odd_text_is_kept(as_role: Roles) -> None:
    with refused_refund() as job:
        sam = staff.member("sam")
        with as_role("api"), tenancy.everyone():
            reason = "a zero \x00 and \ud800 a surrogate"
            evidence = {"note": "<script>\x00", "ref": "re_1"}
            asked = staff.asked("done", sam, reason=reason, evidence=evidence)
            assert resolutions.act(job, asked, by=sam).state == "waiting"
        stored = models.Resolution.objects.get(job_id=job)
        assert stored.reason == "a zero \\u0000 and \\ud800 a surrogate"
        assert stored.evidence["note"] == "<script>\\u0000"

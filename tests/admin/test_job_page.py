"""Staff find a stuck compensation, understand it from one page, and end it."""

import re
from datetime import timedelta
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.http.response import HttpResponseBase

from ledger import models, outcomes
from tests import claims, drives, factories, sagas, staff
from tests.admin.conftest import Desk, Stuck, logged_in
from tests.conftest import Roles

HEADLINE = (
    "The undo of payment, 12345 EUR (minor units), did not succeed; what it should have undone"
)
INLINE = re.compile(
    r"<script(?![^>]*\ssrc=)[^>]*>|<style|\sstyle=|\son[a-z]+=|javascript:", re.IGNORECASE
)


def text(answer: HttpResponseBase) -> str:
    assert isinstance(answer, HttpResponse)
    return answer.content.decode()


def page_of(job: UUID) -> str:
    return f"job/{job}/change/"


def test_the_list_opens_on_what_needs_a_person_oldest_first(desk: Desk, stuck: Stuck) -> None:
    with sagas.trip(sagas.World()) as trip:
        fine = factories.submit(trip)
        drives.drive_all()
    listed = desk.get("job/")
    assert HEADLINE in listed
    assert "12345 EUR (minor units)" in listed
    assert str(fine) not in listed
    assert str(fine) in desk.get("job/?needs=all")
    assert str(fine) in desk.get(f"job/?q={fine}")
    assert str(fine) in desk.get("job/?state__exact=confirmed")
    assert str(stuck.job) not in desk.get("job/?needs=going-back")


def test_a_job_that_goes_back_with_a_refused_undo_is_listed_before_it_parks(desk: Desk) -> None:
    world = sagas.World()
    world.says("ticket:forward", sagas.raising(outcomes.Refused("sold_out")))
    world.says("payment:backward", sagas.raising(outcomes.Refused("disputed")))
    world.says("room:backward", sagas.raising(outcomes.Throttled(timedelta(hours=1))))
    with sagas.trip(world) as trip:
        job = factories.submit(trip)
        drives.drive_all()
        assert str(job) in desk.get("job/?needs=going-back")
        page = desk.get(page_of(job))
    assert "It goes backward; the undo of payment was refused. Acts wait until it parks." in page
    assert "CHANGE_FORM-action" not in page


def test_the_page_says_what_is_known_and_what_may_be_done(desk: Desk, stuck: Stuck) -> None:
    staff.does(stuck.job, "note", by=staff.member("ann"), reason="called the bank on Monday")
    page = desk.get(page_of(stuck.job))
    assert HEADLINE in page
    assert "the attempt budget is spent" in page
    for words in ("not_sent connection_refused", "2 x, last", "note by ann", "called the bank"):
        assert words in page
    money = re.search(r">EUR</th>(.*?)</tr>", page)
    assert money is not None
    assert re.findall(r"\d+", money[1]) == ["24690", "12345", "12345", "0"]  # the room, too
    offered = re.findall(r'name="CHANGE_FORM-action" value="([a-z-]+)"', page)
    assert offered == ["retry", "done", "close", "take", "note"]


def test_looking_changes_nothing_and_runs_under_a_strict_content_policy(
    desk: Desk, stuck: Stuck
) -> None:
    before = (claims.snapshot(stuck.job), LogEntry.objects.count())
    confirm = text(desk.press(stuck.job, "done", stuck.row.fence))
    for page in (desk.get("job/"), desk.get(page_of(stuck.job)), confirm):
        assert INLINE.findall(page) == []
    desk.get(f"{page_of(stuck.job)}?CHANGE_FORM-action=done&confirmed=yes&seen=1&reason=a-long-one")
    assert (claims.snapshot(stuck.job), LogEntry.objects.count()) == before


def test_what_came_from_outside_is_text(desk: Desk) -> None:
    world = sagas.World()
    evil = "<script>alert(1)</script>"
    world.says("ticket:forward", sagas.raising(outcomes.Refused("sold_out")))
    world.says("payment:backward", sagas.raising(outcomes.Refused(evil, {evil: evil})))
    with sagas.trip(world) as trip:
        job = factories.submit(trip, {"amount_minor": 5, "currency": "EUR"})
        drives.drive_all()
        staff.does(job, "note", reason=f"{evil} said the provider")
        pages = desk.get("job/") + desk.get(page_of(job))
        pages += text(desk.press(job, "done", models.Job.objects.get(id=job).fence))
    assert evil not in pages
    assert "&lt;script&gt;alert(1)" in pages


def test_a_retry_from_the_page_ends_the_compensation(
    desk: Desk, stuck: Stuck, as_role: Roles
) -> None:
    """With the API's own privileges, as the pages run."""
    seen = stuck.row.fence
    with as_role("api"):
        confirm = text(desk.press(stuck.job, "retry", seen))
        assert "under the same operation id: nothing happens twice" in confirm
        assert f'value="{seen}"' in confirm
        told = desk.told(desk.press(stuck.job, "retry", seen, operation="payment:backward"))
    assert "Recorded: retry payment:backward; the job is waiting." in told
    drives.drive_all()
    assert drives.state(stuck.job) == "compensated"
    assert stuck.world.times("payment:backward") == 3
    assert staff.resolved(stuck.job) == [("payment:backward", "retry", "sam")]
    assert [who for who, _ in staff.logged(stuck.job)] == ["sam"]


def test_done_by_hand_with_a_reference(desk: Desk, stuck: Stuck) -> None:
    fields = {"operation": "payment:backward", "ref": "re_9", "note": "in their dashboard"}
    desk.told(desk.press(stuck.job, "done", stuck.row.fence, **fields))
    drives.drive_all()
    assert drives.state(stuck.job) == "compensated"
    kept = models.Resolution.objects.get(job_id=stuck.job).evidence
    assert kept == {"ref": "re_9", "note": "in their dashboard"}


def test_closing_takes_two_people(desk: Desk, stuck: Stuck) -> None:
    desk.told(desk.press(stuck.job, "close", stuck.row.fence, note="paid in cash"))
    again = desk.told(desk.press(stuck.job, "close", stuck.row.fence, note="paid in cash"))
    assert "Refused: already proposed by sam: a second person closes it." in again
    other = logged_in("kim")
    other.told(other.press(stuck.job, "close", stuck.row.fence, note="agreed"))
    assert drives.state(stuck.job) == "closed"


@pytest.mark.parametrize("fields", [{"reason": "short"}, {"reason": " " * 20}, {"reason": ""}])
def test_an_act_without_a_reason_asks_for_one(
    desk: Desk, stuck: Stuck, fields: dict[str, str]
) -> None:
    before = claims.snapshot(stuck.job)
    asked = desk.press(stuck.job, "retry", stuck.row.fence, operation="payment:backward", **fields)
    assert asked.status_code == 200
    assert "errorlist" in text(asked)
    assert claims.snapshot(stuck.job) == before
